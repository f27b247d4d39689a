"""Snapshots of logical volumes as they are now; LVM freezes the filesystem meanwhile."""

from __future__ import annotations

from localvolume.backends.lvm.record import KIND, MAKING, OF, SNAPSHOT, STATE, Entry
from localvolume.backends.lvm.removal import is_snapshot, is_snapshot_of, remove
from localvolume.backends.lvm.tools import Take, Tools
from localvolume.backends.lvm.view import Snapshot, View, snapshot_of
from localvolume.backends.model import Impossible, NotThisVolume
from localvolume.host.lvm.commands import check_name
from localvolume.volumes.lvtags import OWNER, POOL_OWNER, encode


def make(
    tools: Tools, seen: View, entry: Entry, name: str, size_bytes: int | None, take: Take
) -> Snapshot:
    """Take a snapshot of that name, or return the one that was taken before; it is active.

    `size_bytes` is the space of a classic one, by default as much as it can ever need. Raises
    NotThisVolume if something else has the name.
    """
    check_name(name)
    origin = entry.volume
    thin = origin.kind == "thin"
    if thin and size_bytes is not None:
        raise Impossible("a thin snapshot has no room of its own: it takes its pool's")
    known = seen.snapshots.get(name)
    if known is not None:
        if known.origin != origin.name:
            raise NotThisVolume(f"{name} is a snapshot of {known.origin}")
        if thin:
            tools.active(seen.volumes[name])
        return known
    if seen.half_snapshots.get(name) == origin.name:
        remove(tools, seen.volumes[name], is_snapshot_of(origin.name))
    elif name in seen.volumes:
        raise NotThisVolume(f"there is a volume {name} already, and it is no snapshot of ours")
    if not thin and origin.kind != "thick":
        raise Impossible(f"{origin.full_name} is neither thin, linear nor striped")
    extent = seen.group.extent_bytes
    # Kept are the former content and a table of where it was: a little more than the origin.
    whole = origin.size_bytes + extent + origin.size_bytes // 128
    asked = whole if size_bytes is None else size_bytes
    needed = origin.size_bytes if thin else -(-asked // extent) * extent
    fields = {OWNER: POOL_OWNER, KIND: SNAPSHOT, OF: origin.name}

    def create(now: View) -> None:
        tools.lvm.snapshot(
            now.group.name,
            origin.name,
            name,
            size_bytes=None if thin else needed,
            tags=encode({**fields, STATE: MAKING}),
        )

    take(seen, create, needed)
    taken = tools.made(name)
    return snapshot_of(tools.retag(tools.active(taken) if thin else taken, fields))


def drop(tools: Tools, seen: View, name: str) -> None:
    """Remove a snapshot of ours, if it is there. Raises NotThisVolume for anything else."""
    found = seen.volumes.get(name)
    if found is None:
        return
    if name not in seen.snapshots and name not in seen.half_snapshots:
        raise NotThisVolume(f"{found.full_name} is no snapshot of ours")
    remove(tools, found, is_snapshot)
