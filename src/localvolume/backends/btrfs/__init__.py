"""Volumes that are subvolumes of btrfs, limited by quota groups."""
