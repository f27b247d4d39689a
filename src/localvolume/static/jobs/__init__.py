"""Cleaning in Jobs: makes and watches them, and believes them only with proof."""
