"""Growing a logical volume: the volume, its filesystem, its tags, in this order.

What LVM has given it does not count until the tags say so: after a crash in between, the next
attempt completes the growth.

A raw thick volume differs: the space that it grows by may hold other tenants' data, which its user
could read at once. So that space is first made a volume of its own, zeroed and removed, and the raw
volume grows onto the same extents.
"""

from __future__ import annotations

from dataclasses import replace

from localvolume.backends.lvm import filesystem
from localvolume.backends.lvm.making import fs_of, lv_bytes, zero
from localvolume.backends.lvm.record import GROWTH, KIND, OF, Entry, fields_of, growth_name
from localvolume.backends.lvm.removal import growth_of, is_growth, remove
from localvolume.backends.lvm.tools import Take, Tools
from localvolume.backends.lvm.view import OUTDATED, View
from localvolume.backends.model import BackendFailed, Impossible, Record
from localvolume.host.lvm.commands import LogicalVolume
from localvolume.volumes.lvtags import OWNER, POOL_OWNER


def grow(tools: Tools, seen: View, entry: Entry, size_bytes: int, take: Take) -> Record:
    """Let the volume have that many bytes, rounded up as LVM does."""
    record, volume = entry.record, entry.volume
    target = lv_bytes(tools, seen, replace(record, option_class=""), size_bytes)
    if volume.kind != "thin" and (snapshots := ", ".join(seen.on(record.name))):
        raise BackendFailed(f"{record.name} grows once its snapshots ({snapshots}) are removed")
    volume = tools.active(volume)
    if volume.size_bytes < target:
        more = target - volume.size_bytes
        if volume.kind == "thin" or record.volume_mode == "Filesystem":
            take(seen, lambda _: tools.lvm.extend(volume, target), more)
        else:
            _extend_zeroed(tools, seen, volume, target, take)
        volume = tools.active(tools.still(volume))
        if volume.size_bytes < target:
            raise BackendFailed(f"LVM says that it extended {record.name}, and did not")
    if fs := fs_of(record):
        filesystem.grow_filesystem(tools.run, volume.path, volume.device, fs)
    grown = replace(record, size_bytes=volume.size_bytes)
    tools.retag(volume, fields_of(grown))
    return grown


def _extend_zeroed(
    tools: Tools, seen: View, volume: LogicalVolume, target: int, take: Take
) -> None:
    if volume.kind != "thick":
        raise Impossible(f"{volume.name} is raw and neither linear nor striped: it cannot grow")
    more = target - volume.size_bytes
    growth = growth_of(seen, volume.name)
    if growth is not None and growth.size_bytes != more:
        remove(tools, growth, is_growth(volume.name))
        # What was free before no longer holds: it is read again.
        growth, seen = None, replace(seen, turn=OUTDATED)
    if growth is None:
        fields = {OWNER: POOL_OWNER, KIND: GROWTH, OF: volume.name}
        take(seen, lambda _: tools.create(growth_name(volume.name), more, fields), more)
        growth = tools.created(seen.group, growth_name(volume.name), fields)
        if growth.size_bytes != more:
            raise BackendFailed(f"{volume.name} cannot grow by just {more} bytes of zeroed room")
    growth = tools.active(growth)
    zero(tools, growth)
    places = tools.lvm.places(growth)

    def onto(_: View) -> None:
        # If LVM discarded its blocks, they might not read as zeros any more.
        remove(tools, growth, is_growth(volume.name), keep_blocks=True)
        tools.lvm.extend_onto(volume, target, places)

    take(seen, onto, 0)
