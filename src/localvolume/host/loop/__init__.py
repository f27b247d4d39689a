"""Loop devices: put under a file, recognised, taken away."""
