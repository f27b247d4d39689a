"""The mount table, who has what mounted, and mounts that nobody else sees."""
