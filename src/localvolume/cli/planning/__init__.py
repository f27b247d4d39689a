"""The pools in `localvolume plan`: what the agent would do with each, and with their volumes."""
