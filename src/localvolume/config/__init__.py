"""Our configuration, and readers for the formats of the tools we replace."""
