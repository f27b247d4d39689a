"""Readers for the formats of the tools we replace: each turns one into our own configuration."""
