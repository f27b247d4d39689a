"""What writes docs/reference from the code's own tables: `make reference`."""
