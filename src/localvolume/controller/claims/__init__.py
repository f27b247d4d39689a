"""Claims: each to the node that shall serve it."""
