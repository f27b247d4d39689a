"""A miniature of the Kubernetes API in memory, for the demo and for faults on demand."""
