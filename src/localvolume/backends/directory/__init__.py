"""Volumes that are directories, limited by project quotas."""
