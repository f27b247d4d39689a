"""Filesystems: what they say of themselves, their quotas, their flags, their failures."""
