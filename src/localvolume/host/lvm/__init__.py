"""LVM through its own commands, and what a killed one leaves."""
