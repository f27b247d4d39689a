"""Why a volume, a claim or a path is as it is."""
