"""The names of the provisioners of the volumes that we make, needed even if none are made."""

from typing import Final

DYNAMIC_PROVISIONER: Final = "dynamic.localvolume.dev"
"""The provisioner that our StorageClasses name. It has no "/", so that a CSIDriver can have the
same name, and the scheduler takes account of the capacity published under it."""

CSI_DRIVER: Final = "csi.localvolume.dev"
"""The provisioner of our StorageClasses whose volumes are served by CSI, and its driver's name."""

OURS: Final = frozenset({DYNAMIC_PROVISIONER, CSI_DRIVER})
"""Both make the same volumes in the same pools. The PersistentVolumes differ."""
