"""The mount table, which mounts use a directory, and mounts that nobody else sees."""
