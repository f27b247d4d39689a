"""Raw disks become volumes: found by filters, approved as a plan, then formatted and mounted."""
