"""The name of the provisioner of the volumes that we make, needed even if none are made."""

from typing import Final

DYNAMIC_PROVISIONER: Final = "dynamic.localvolume.dev"
"""The provisioner that our StorageClasses name. It has no "/", so that a CSIDriver can have the
same name, and the scheduler takes account of the capacity published under it."""
