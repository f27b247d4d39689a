"""LVM by its own commands, and what a killed one leaves."""
