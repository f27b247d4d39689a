"""What logical volumes hold now, as far as that can be told without touching what hangs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from localvolume.backends.lvm.filesystem import usage_of
from localvolume.backends.lvm.making import fs_of
from localvolume.backends.lvm.record import Entry
from localvolume.backends.lvm.view import View
from localvolume.backends.model import BackendFailed, Usage
from localvolume.host.mount.mounts import MountTable, read_mount_table


def usage(seen: View) -> Mapping[str, Usage]:
    """By name: of the filesystem where that tells, else what a thin volume has of its pool."""
    found = {}
    mounts = read_mount_table()
    for name, entry in seen.entries.items():
        if entry.record.state == "making":
            continue
        # One that cannot be measured now is left out.
        with suppress(OSError, BackendFailed):
            measured = _usage(entry, mounts)
            if measured is not None:
                found[name] = measured
    return found


def _usage(entry: Entry, mounts: MountTable) -> Usage | None:
    volume, fs = entry.volume, fs_of(entry.record)
    # Reading a suspended device would wait for as long as it is suspended.
    usable = volume.active and not volume.suspended and volume.device
    if fs and usable and entry.record.state != "removed":
        measured = usage_of(volume.path, volume.device, fs, mounts)
        if measured is not None:
            return measured
    if volume.kind == "thin" and volume.data_percent is not None:
        return Usage(used_bytes=int(volume.size_bytes * volume.data_percent / 100))
    return None
