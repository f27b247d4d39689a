"""Programs and blocking calls: run within limits, and given up when they hang."""
