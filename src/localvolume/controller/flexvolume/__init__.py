"""FlexVolume: PersistentVolumes for claims, and their end."""
