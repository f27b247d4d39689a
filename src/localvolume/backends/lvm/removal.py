"""Removing a logical volume of ours, once it is proven to be that one and not in use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from localvolume.backends.lvm.engine import Fields
from localvolume.backends.lvm.filesystem import was_never_mounted
from localvolume.backends.lvm.record import (
    CUT,
    GROWTH,
    KIND,
    OF,
    STATE,
    Entry,
    cut_name,
    fields_of,
    growth_name,
    kept_fields,
)
from localvolume.backends.lvm.tools import Tools
from localvolume.backends.lvm.view import View, classic_snapshots
from localvolume.backends.lvm.wiping import wipe
from localvolume.backends.model import (
    BackendFailed,
    Busy,
    NotThisVolume,
    Progress,
    Record,
    has_content_of,
)
from localvolume.host.lvm.commands import LogicalVolume
from localvolume.volumes.lvtags import OWNER, POOL_OWNER, BadTag, decode


def remove(
    tools: Tools,
    volume: LogicalVolume,
    is_meant: Callable[[Fields], bool],
    *,
    keep_blocks: bool = False,
) -> None:
    """Remove the volume with that UUID, if its tags now are ours and `is_meant` accepts them.

    Raises as ``Engine.remove`` does; BackendFailed if snapshots depend on it.
    """

    def check(found: LogicalVolume, volumes: Sequence[LogicalVolume]) -> None:
        try:
            fields = decode(found.tags)
        except BadTag as error:
            raise NotThisVolume(f"{found.full_name}: {error}: it is left alone") from error
        if fields.get(OWNER) != POOL_OWNER or not is_meant(fields):
            raise NotThisVolume(
                f"{found.full_name} is not what was to be removed: it is left alone"
            )
        refuse_with_snapshots(found.name, classic_snapshots(found.name, volumes))

    tools.remove(volume, check, keep_blocks=keep_blocks)


def refuse_with_snapshots(name: str, snapshots: Collection[str]) -> None:
    """Raise BackendFailed if there are snapshots: classic ones would go with their origin."""
    if snapshots:
        raise BackendFailed(
            f"{name} has snapshots ({', '.join(sorted(snapshots))}): it goes once they are removed"
        )


def in_state(*states: str) -> Callable[[Fields], bool]:
    """Accepts a volume itself in one of these states."""
    return lambda fields: KIND not in fields and fields.get(STATE) in states


def retire(tools: Tools, entry: Entry) -> Record:
    """Deactivate it, which proves that nobody uses it, and record that it is removed.

    Snapshots of LVM's are deactivated with their volume; one that goes itself must not take the
    volume along, which is in use.
    """
    volume = entry.volume
    if volume.suspended:
        # Otherwise nobody could ever close it.
        volume = tools.active(volume)
    if volume.kind == "snapshot":
        if volume.open:
            raise Busy(f"{volume.full_name} is in use")
    elif volume.active:
        tools.lvm.deactivate(volume)
    gone = replace(entry.record, state="removed")
    tools.retag(volume, fields_of(gone))
    return gone


def purge(
    tools: Tools, seen: View, entry: Entry, stop: threading.Event, progress: Progress | None
) -> None:
    """Make its content unreadable, as its class demands, and remove it."""
    record, volume = entry.record, entry.volume
    refuse_with_snapshots(record.name, seen.on(record.name))
    if stop.is_set():
        raise BackendFailed("stopped before it was removed")
    if record.overwrite or record.discard:
        volume = tools.active(tools.again(volume))

        def proceed(done: int) -> bool:
            if stop.is_set():
                raise BackendFailed("stopped while its content was made unreadable")
            if progress is not None:
                progress(0, done)
            return True

        wipe(volume, "overwrite" if record.overwrite else "discard", proceed)
    drop_growth(tools, seen, record.name)
    remove(tools, volume, in_state("removed"))
    if progress is not None:
        progress(1, volume.size_bytes)


def take_away(tools: Tools, seen: View, entry: Entry) -> None:
    """Remove a volume that nobody ever had; it stays if it is in use after all."""
    record, volume = entry.record, entry.volume
    refuse_with_snapshots(record.name, seen.on(record.name))
    if record.state != "making":
        if volume.active:
            tools.lvm.deactivate(volume)
        # From here on, what a crash leaves may be taken away, or made again.
        volume = tools.retag(volume, fields_of(replace(record, state="making")))
    drop_growth(tools, seen, record.name)
    drop_cut(tools, seen, record.name)
    remove(tools, volume, in_state("making"))


def is_untouched(tools: Tools, entry: Entry) -> bool:
    """Whether it is certain that nobody ever wrote to it: an ext4 that was never mounted."""
    record = entry.record
    if record.volume_mode == "Block" or has_content_of(record):
        return False
    volume = tools.active(entry.volume)
    return was_never_mounted(volume.path, volume.device, record.fs_type or "ext4")


def forget(tools: Tools, seen: View, entry: Entry) -> None:
    """Let go of it: from now on it is nobody's, and its tags say whose it was."""
    # Do this while the owner of that space is known: no volume of ours would ever take it again.
    drop_growth(tools, seen, entry.record.name)
    tools.retag(tools.again(entry.volume), kept_fields(entry.record))


def growth_of(seen: View, name: str) -> LogicalVolume | None:
    """The space that the volume was about to grow by; None if there is none of ours."""
    return _there(seen, growth_name(name), is_growth(name))


def cut_of(seen: View, name: str) -> LogicalVolume | None:
    """The cut that the copy of that name is made of; None if there is none of ours."""
    return _there(seen, cut_name(name), is_cut(name))


def _there(seen: View, name: str, is_meant: Callable[[Fields], bool]) -> LogicalVolume | None:
    found = seen.volumes.get(name)
    try:
        return found if found is not None and is_meant(decode(found.tags)) else None
    except BadTag:
        return None


def is_growth(name: str) -> Callable[[Fields], bool]:
    """Accepts the space that the volume was about to grow by."""
    return _is(GROWTH, name)


def is_cut(name: str) -> Callable[[Fields], bool]:
    """Accepts the cut that the copy of that name is made of."""
    return _is(CUT, name)


def _is(kind: str, name: str) -> Callable[[Fields], bool]:
    wanted = {OWNER: POOL_OWNER, KIND: kind, OF: name}
    return lambda fields: all(fields.get(key) == value for key, value in wanted.items())


def drop_growth(tools: Tools, seen: View, name: str) -> None:
    """Remove what an interrupted growth of the volume left."""
    left = growth_of(seen, name)
    if left is not None:
        remove(tools, left, is_growth(name))


def drop_cut(tools: Tools, seen: View, name: str) -> None:
    """Remove the cut that an interrupted copy left."""
    left = cut_of(seen, name)
    if left is not None:
        remove(tools, left, is_cut(name))
