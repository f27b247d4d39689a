"""Readers for the formats of the tools we replace: each makes our own configuration of them."""
