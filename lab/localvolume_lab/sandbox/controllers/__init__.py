"""The controllers of the sandbox: what goes on by itself."""
