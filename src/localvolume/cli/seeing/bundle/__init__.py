"""What goes into a support bundle, and what must not."""
