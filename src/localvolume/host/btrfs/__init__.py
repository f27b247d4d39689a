"""Subvolumes and quota groups of btrfs, by ioctl."""
