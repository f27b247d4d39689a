"""What a volume is, whatever made it: identity, capacity, node affinity, PV manifests."""
