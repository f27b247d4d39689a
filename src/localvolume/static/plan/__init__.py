"""What should happen to the volumes that an administrator prepared, and why: pure."""
