"""Filesystems: their superblocks, their quotas, their flags, their failures."""
