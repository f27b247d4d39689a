"""Directory trees by descriptor: opened beneath their root, made, emptied."""
