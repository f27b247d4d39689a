"""Volumes that are logical volumes, thick or thin."""
