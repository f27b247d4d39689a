"""PersistentVolumes: adopted, let go, reported or removed with their node."""
