"""How values are written: YAML and JSON, names, durations, patterns, and how each is read."""
