"""Local volumes for Kubernetes: the nodes' own disks as PersistentVolumes."""
