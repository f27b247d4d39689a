"""What is to be said of the health of volumes, and why: pure."""
