"""The node process: wires the roles together, nothing else."""
