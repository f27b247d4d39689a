"""Volumes that are files under loop devices, with a filesystem of their own."""
