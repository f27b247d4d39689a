"""What CSI calls are answered, and what is done for them first. Pure."""
