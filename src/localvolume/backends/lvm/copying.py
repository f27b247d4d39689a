"""Snapshots and copies of logical volumes: of thin ones here, of thick ones with `thickcopy`.

- A thin snapshot is a volume of its own: either may go first, and both share blocks until these are
  written to. device-mapper suspends the origin for the cut, which freezes and flushes what is
  mounted, and lets it go on by itself.
- LVM makes it with its tags in one step. What a crash left before it is complete is cut anew,
  as nobody was told of it and nobody knows when the pool was.
- A snapshot is never activated: it has no device that anybody could write to or mount.
- A copy gets an identity of its own before anybody has it: node and kernel tell filesystems apart
  by their UUIDs. As a Block volume it has the bytes of its origin as they are.
- A thick volume has classic snapshots only, which slow it down and are lost once they are full: all
  of it is copied, or a snapshot has a reserve (`reserved`), if the class of the copy says so.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Final

from localvolume.backends.lvm import filesystem, reserved, thickcopy
from localvolume.backends.lvm.making import check, entry_of, fs_of, lv_bytes
from localvolume.backends.lvm.record import Entry, completed, fields_of, read_entry
from localvolume.backends.lvm.removal import in_state, remove
from localvolume.backends.lvm.tools import Take, Tools
from localvolume.backends.lvm.view import OUTDATED, View
from localvolume.backends.model import BackendFailed, Impossible, NotThisVolume, Record
from localvolume.backends.modes import no_mode_change
from localvolume.host.lvm.commands import LogicalVolume
from localvolume.volumes.lvtags import encode

THICK: Final = "thick logical volumes share no blocks: use a thin pool"

log = logging.getLogger(__name__)


def copy(tools: Tools, seen: View, record: Record, origin: Entry, take: Take) -> Record:
    """Make the snapshot or volume with the content of `origin`; a volume is active.

    Raises NotThisVolume if something else has its name, NoSpace, Impossible, BackendFailed.
    """
    check(tools, record)
    if why := no_mode_change(origin.record, record.volume_mode):
        raise Impossible(why)
    thin = origin.volume.kind == "thin" and bool(tools.of.thin_pool)
    if not thin and not (record.full_copies or record.reserve_bytes):
        raise Impossible(THICK)
    known = entry_of(seen, record.name)
    if known is not None and known.record.state == "removed":
        raise NotThisVolume(f"{record.name} was removed, and is not purged yet")
    if known is not None and known.record.claim_uid != record.claim_uid:
        raise NotThisVolume(f"{record.name} was made for another claim")
    if not thin and record.reserve_bytes and (known is None or known.record.state == "making"):
        known = reserved.cut(tools, seen, record, origin, known, take)
    elif not thin and (known is None or known.record.state == "making"):
        known = _filled(tools, seen, record, origin, known, take)
    elif known is not None and known.record.state == "making":
        remove(tools, known.volume, in_state("making"))
        # What was there before no longer holds: it is read again.
        known, seen = None, replace(seen, turn=OUTDATED)
    if known is None:
        known = _made(tools, seen, record, origin, take)
    if not known.record.snapshot_of:
        tools.active(known.volume)
    return known.record


def _made(tools: Tools, seen: View, record: Record, origin: Entry, take: Take) -> Entry:
    has = origin.volume.size_bytes
    cut: list[LogicalVolume] = []
    if record.snapshot_of:
        holds = mapped(tools, origin)
        take(seen, lambda now: cut.append(_cut(tools, now, record, origin, has)), holds)
        volume = cut[0]
        # What was written until the cut is in it, too.
        holds = min(has, max(holds, mapped(tools, origin)))
        made = replace(record, state=completed(record), cut_at=time.time_ns(), holds_bytes=holds)
        return Entry(
            record=made, volume=tools.retag(volume, fields_of(made)), asked=made.size_bytes
        )
    size = max(has, lv_bytes(tools, seen, record, record.size_bytes))
    take(seen, lambda now: cut.append(_cut(tools, now, record, origin, size)), size)
    return _completed(tools, read_entry(cut[0]))


def _filled(
    tools: Tools, seen: View, record: Record, origin: Entry, known: Entry | None, take: Take
) -> Entry:
    copy, cut_at = thickcopy.filled(tools, seen, record, origin, known, take)
    if not record.snapshot_of:
        return _completed(tools, copy)
    volume = copy.volume
    tools.lvm.deactivate(volume)
    tools.lvm.keep_inactive(volume)
    holds = volume.size_bytes
    made = replace(record, state=completed(record), cut_at=cut_at, holds_bytes=holds)
    return Entry(record=made, volume=tools.retag(volume, fields_of(made)), asked=made.size_bytes)


def _cut(tools: Tools, now: View, record: Record, origin: Entry, size: int) -> LogicalVolume:
    if record.name in now.volumes:
        raise NotThisVolume(f"there is a volume {record.name} already, and it is not this one")
    has = origin.volume.size_bytes
    begun = fields_of(replace(record, state="making", volume_uid="", cut_at=0), size_bytes=has)
    _take_number(tools, now, record.name, has, begun)
    tools.lvm.snapshot(
        tools.of.group,
        origin.volume.name,
        record.name,
        active=not record.snapshot_of,
        tags=encode(begun),
    )
    volume = tools.made(record.name)
    if volume.kind != "thin" or volume.origin != origin.volume.name:
        raise BackendFailed(f"LVM says that it made a snapshot, and {volume.full_name} is none")
    if size <= volume.size_bytes:
        return volume
    # Nobody else has taken that room meanwhile.
    tools.lvm.extend(volume, size)
    return tools.made(record.name)


def _take_number(tools: Tools, now: View, name: str, size: int, begun: dict[str, str]) -> None:
    """See to it that the pool has no volume of the number that LVM gives to the next.

    Killed commands may leave a volume in the thin pool that LVM does not know. The kernel then
    answers that the snapshot exists already, and LVM takes that for the answer to its own message
    sent twice: the snapshot would have a former tenant's data. So a volume is made first, and
    removed: LVM's removal deletes whatever has its number.
    """
    tools.create(name, size, begun, thin_pool=tools.of.thin_pool)
    volume = tools.created(now.group, name, begun, thin_pool=tools.of.thin_pool)
    if mapped := tools.lvm.mapped_bytes(tools.active(volume)):
        log.warning("%s had %d bytes of its pool already: removed", volume.full_name, mapped)
    remove(tools, volume, in_state("making"))


def mapped(tools: Tools, origin: Entry) -> int:
    """How many bytes of its pool a thin volume uses now."""
    return tools.lvm.mapped_bytes(tools.active(origin.volume))


def _completed(tools: Tools, begun: Entry) -> Entry:
    """Give the copy a filesystem of its own, over all of it."""
    volume, record = tools.active(begun.volume), begun.record
    if fs := fs_of(record):
        filesystem.renew_identity(tools.run, volume.path, volume.device, fs)
        filesystem.grow_filesystem(tools.run, volume.path, volume.device, fs)
    made = replace(record, state=completed(record), size_bytes=volume.size_bytes)
    return Entry(record=made, volume=tools.retag(volume, fields_of(made)), asked=made.size_bytes)
