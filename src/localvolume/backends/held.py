"""What the mounts of a volume hold, and which mounts there are: who uses it on this node."""

from __future__ import annotations

import os

from localvolume.backends.model import Source
from localvolume.host.mount.inuse import Held, held_by, users_of
from localvolume.host.mount.mounts import MountTable, read_mount_table
from localvolume.host.tree.entries import device_number


def held_in(table: MountTable, source: Source) -> Held:
    """What each mount of the volume holds. Raises OSError."""
    if source.fs_type:
        return Held(device_number(os.fstat(source.fd).st_rdev), "/")
    return held_by(table, source.fd, _path_of(source))


def used_by(source: Source) -> list[str]:
    """Say which mounts use the volume, or why nobody can tell; empty if none do, as far as this
    process can see."""
    try:
        if not source.fs_type:
            return users_of(source.fd, _path_of(source))
        table = read_mount_table()
        if not table.settled:
            return ["the mounts of this node keep changing"]
        device = held_in(table, source).device
        return [f"it is mounted at {mount.mount_point}" for mount in table.of_device(device)]
    except (OSError, ValueError) as error:
        return [f"it is not known what uses it: {error}"]


def _path_of(source: Source) -> str:
    return os.readlink(f"/proc/self/fd/{source.fd}")
