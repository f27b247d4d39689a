"""The state of volumes, capacity and claims, and what is wrong."""
