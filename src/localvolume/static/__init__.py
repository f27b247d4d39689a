"""Volumes an administrator prepared: facts, then a plan, then actions."""
