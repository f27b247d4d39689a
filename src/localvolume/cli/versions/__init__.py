"""Which versions of us there are: of this command, and in the cluster."""
