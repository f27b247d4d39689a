"""One leader among candidates, by a Lease."""
