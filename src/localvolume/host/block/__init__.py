"""Block devices: what they are, what they hold by their own bytes, who uses them."""
