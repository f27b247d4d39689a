"""What the controller knows of the cluster, trimmed to what it reads."""
