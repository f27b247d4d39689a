"""What every role runs on: the loop that looks, and the runner of at most one action per key."""
