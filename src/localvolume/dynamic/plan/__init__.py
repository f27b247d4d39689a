"""What should happen to the volumes made for claims, and why: pure."""
