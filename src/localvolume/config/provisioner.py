"""The name of the provisioner of volumes that we make: known also where none are made."""

from typing import Final

DYNAMIC_PROVISIONER: Final = "dynamic.localvolume.dev"
"""The provisioner our own StorageClasses name. Without a "/", so that a CSIDriver can have the name
and the scheduler heeds the room that is published under it."""
