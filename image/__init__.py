"""Builds the container image: `python -m image`, or `make image`; see docs/install.md."""
