"""How volumes, room and claims are, and what is wrong."""
