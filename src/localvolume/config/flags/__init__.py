"""The flags of every command, as tables."""
