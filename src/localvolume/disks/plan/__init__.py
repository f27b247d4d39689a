"""Which disks are formatted, which are never touched, and why: pure."""
