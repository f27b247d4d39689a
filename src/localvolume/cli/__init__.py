"""What people type, and the composition of the processes."""
