"""Makes what is published of a version: `python -m release`, or `make release`; see
docs/verify.md."""
