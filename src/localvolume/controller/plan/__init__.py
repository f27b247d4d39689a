"""What should happen to volumes and claims of the whole cluster, and why: pure."""
