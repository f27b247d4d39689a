"""Cleaning in Jobs: watched, made, and taken at their word only with proof."""
