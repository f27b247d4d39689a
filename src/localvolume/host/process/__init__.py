"""Programs and blocking calls: run within limits, and given up where they hang."""
