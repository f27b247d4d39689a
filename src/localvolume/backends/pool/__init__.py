"""A pool of volumes that are files or directories: proved, recorded, and safe in any crash."""
