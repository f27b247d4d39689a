"""What `localvolume remove-finalizers` does with objects other than PersistentVolumes."""
