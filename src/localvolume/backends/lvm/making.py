"""Making a logical volume: it and its tags in one step, then its content, then that it is complete.

Nobody is told of it before it is complete, so what a crash left before that is made again, or
continued where it was.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from localvolume.backends.lvm import filesystem
from localvolume.backends.lvm.record import (
    ZEROED,
    Entry,
    completed,
    fields_of,
    is_begun,
    read_entry,
)
from localvolume.backends.lvm.removal import in_state, remove
from localvolume.backends.lvm.tools import Take, Tools
from localvolume.backends.lvm.view import View
from localvolume.backends.lvm.wiping import zero_for
from localvolume.backends.model import GoesOn, Impossible, NotThisVolume, Record
from localvolume.backends.pool.layout import fault_of_volume_name
from localvolume.host.lvm.commands import LogicalVolume, LvmFailed, LvmUnfinished, check_name
from localvolume.volumes.lvtags import decode

log = logging.getLogger(__name__)


def fs_of(record: Record) -> str:
    """Its filesystem, "" for a raw volume."""
    return "" if record.volume_mode == "Block" else record.fs_type or "ext4"


def check(tools: Tools, record: Record) -> None:
    """Raise Impossible (or BadName) if no such volume can ever be made here."""
    if (fault := fault_of_volume_name(record.name)) is not None:
        raise Impossible(f"the volume's name {fault}")
    check_name(record.name)
    if record.backend != "lvm":
        raise Impossible(f"{record.backend} volumes are not made in a pool of logical volumes")
    if record.directory:
        raise Impossible("a logical volume has no directory")
    if record.size_bytes <= 0:
        raise Impossible("a volume has at least one byte")
    if record.volume_mode == "Filesystem":
        filesystem.check_fs(fs_of(record), record.size_bytes)
    try:
        tools.of.layout(record.option_class)
    except KeyError as error:
        raise Impossible(f"the pool has no options called {record.option_class!r}") from error


def lv_bytes(tools: Tools, seen: View, record: Record, size_bytes: int) -> int:
    """What LVM rounds that many bytes up to: whole extents, as many on each stripe."""
    stripes = tools.of.layout(record.option_class)[0] if not tools.of.thin_pool else 0
    unit = seen.group.extent_bytes * max(1, stripes)
    return -(-size_bytes // unit) * unit


def make(tools: Tools, seen: View, record: Record, take: Take) -> Record:
    """Make the volume, or complete it: it is active, and has the size that LVM gave it."""
    check(tools, record)
    known = entry_of(seen, record.name)
    if known is not None and known.record.state == "removed":
        raise NotThisVolume(f"{record.name} was removed, and is not purged yet")
    if known is not None and known.record.claim_uid != record.claim_uid:
        raise NotThisVolume(f"{record.name} was made for another claim")
    if known is not None and known.record.state == "making":
        known = _begun(tools, known, record)
    if known is None:
        begun = replace(record, state="making", volume_uid="")
        needed = lv_bytes(tools, seen, record, record.size_bytes)
        take(seen, lambda now: _create(tools, now, begun), needed)
        made = tools.created(
            seen.group,
            begun.name,
            fields_of(begun),
            thin_pool=tools.of.thin_pool,
            option_class=begun.option_class,
        )
        known = read_entry(made)
    volume = tools.active(known.volume)
    if known.record.state == "making":
        _refuse_used(tools, volume)
        return _complete(tools, replace(known, volume=volume))
    return known.record


def _begun(tools: Tools, known: Entry, record: Record) -> Entry:
    """The volume that was begun for the record. If it is of no use, remove it, as nobody had it,
    and raise GoesOn: the next call makes it again.

    A killed lvcreate may leave a thin volume on record that its pool was never told of.
    """
    volume = known.volume
    if is_begun(known, record):
        try:
            return replace(known, volume=tools.active(volume))
        except LvmUnfinished:
            raise
        except LvmFailed:
            if volume.kind != "thin":
                raise
    remove(tools, volume, in_state("making"))
    raise GoesOn(f"{record.name} was begun, and is to be made anew")


def _refuse_used(tools: Tools, volume: LogicalVolume) -> None:
    """Remove a thin volume that has data before anybody was given it, and raise GoesOn.

    Killed commands may leave a volume in the thin pool that LVM does not know. LVM gives its number
    to the next volume; the kernel answers that it exists already, and LVM takes that for the answer
    to its own message sent twice. The new volume then has the former tenant's data; LVM's removal
    deletes it. Or the data is the filesystem that was being made here.
    """
    if volume.kind != "thin" or not (mapped := tools.lvm.mapped_bytes(volume)):
        return
    log.warning("%s has %d bytes of its pool already: made anew", volume.full_name, mapped)
    remove(tools, volume, in_state("making"))
    raise GoesOn(f"{volume.name} was not empty, and is to be made anew")


def _create(tools: Tools, seen: View, begun: Record) -> None:
    if begun.name in seen.volumes:
        raise NotThisVolume(f"there is a volume {begun.name} already, and it is not this one")
    tools.create(
        begun.name,
        lv_bytes(tools, seen, begun, begun.size_bytes),
        fields_of(begun),
        thin_pool=tools.of.thin_pool,
        option_class=begun.option_class,
    )


def _complete(tools: Tools, known: Entry) -> Record:
    volume, record = known.volume, known.record
    if fs := fs_of(record):
        filesystem.make_filesystem(
            tools.run,
            volume.path,
            volume.device,
            fs,
            mode=record.mode,
            uid=record.uid,
            gid=record.gid,
        )
    elif volume.kind != "thin":
        # Its extents may hold other tenants' data, and its user can read all of it.
        zero(tools, volume)
        volume = tools.still(volume)
    made = replace(record, state=completed(record), size_bytes=volume.size_bytes)
    tools.retag(volume, fields_of(made))
    return made


def zero(tools: Tools, volume: LogicalVolume) -> None:
    """Zero the rest of a volume of ours; its tags say how far that has come. Raises GoesOn if one
    call is not enough.
    """
    fields = decode(volume.tags)
    start = int(fields.get(ZEROED, "0"))
    at, done = zero_for(volume.path, volume.device, start, tools.zeroing)
    if done:
        return
    tools.retag(volume, {**fields, ZEROED: str(at)})
    raise GoesOn(f"{volume.name} is zeroed up to {at} of {volume.size_bytes} bytes")


def entry_of(seen: View, name: str) -> Entry | None:
    """The volume of ours with that name, None if there is none. Raises NotThisVolume if its tags
    cannot be read.
    """
    if name in seen.unreadable:
        raise NotThisVolume(f"the tags of {name}: {seen.unreadable[name]}: it is left alone")
    return seen.entries.get(name)
