"""What every long-running process of ours has: endpoints for health and metrics."""
