"""What to report about the health of volumes, and why: pure."""
