"""Beside the product: a Kubernetes API in memory, real control planes, the demonstration."""
