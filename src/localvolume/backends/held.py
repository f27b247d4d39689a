"""What the mounts of a volume hold, by the mount table."""

from __future__ import annotations

import os

from localvolume.backends.model import Source
from localvolume.host.mount.inuse import Held, held_by
from localvolume.host.mount.mounts import MountTable
from localvolume.host.tree.entries import device_number


def held_in(table: MountTable, source: Source) -> Held:
    """What each mount of the volume holds. Raises OSError."""
    if source.fs_type:
        return Held(device_number(os.fstat(source.fd).st_rdev), "/")
    return held_by(table, source.fd, _path_of(source))


def _path_of(source: Source) -> str:
    return os.readlink(f"/proc/self/fd/{source.fd}")
