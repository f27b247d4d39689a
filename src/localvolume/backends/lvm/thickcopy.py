"""Copies of thick logical volumes: all data is copied, as it is at one moment.

- That moment is a cut: a classic snapshot of LVM's, which is there while its origin is copied, and
  no longer. device-mapper suspends the origin for it, which freezes and flushes what is mounted.
- What is written to the origin meanwhile fills the cut. One that is full is lost, and the copy with
  it; the origin never is.
- The copy is made first, with all of its room, and then its cut: whoever finds a cut finds whose it
  is. After a crash the copy goes on where it was, or is begun anew without its cut.
- A snapshot is copied without a cut: nobody writes to it. It has a device for as long as that
  takes; one with a reserve has it anyway, and what it holds may be lost meanwhile.
- All of a copy is written: its extents may hold a former tenant's data.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass, replace
from typing import Final

from localvolume.backends.lvm.making import fs_of, lv_bytes
from localvolume.backends.lvm.record import (
    COPIED,
    CUT,
    CUT_AT,
    KIND,
    OF,
    Entry,
    cut_name,
    fields_of,
    read_entry,
)
from localvolume.backends.lvm.removal import cut_of, in_state, is_cut, remove
from localvolume.backends.lvm.tools import Take, Tools
from localvolume.backends.lvm.view import OUTDATED, View
from localvolume.backends.lvm.wiping import zero_for
from localvolume.backends.lvm.zeroing import Zeroing
from localvolume.backends.model import (
    BackendFailed,
    Busy,
    GoesOn,
    Impossible,
    NotThisVolume,
    Record,
    has_content_of,
    lost,
)
from localvolume.host.block.blockdev import exclusive_open
from localvolume.host.lvm.commands import LogicalVolume, check_names
from localvolume.host.lvm.report import INVALID
from localvolume.host.syscalls import closed_after, write_at
from localvolume.volumes.lvtags import OWNER, POOL_OWNER, decode, encode

_MIB: Final = 1 << 20
_SHARE: Final = 5
_LEAST: Final = 64 * _MIB
"""What may be written to a volume while it is copied: a fifth of its size, and at least this."""
_SETTLE: Final = 64 * _MIB
"""What is written before the disk is waited for."""
_PIECE: Final = 4 * _MIB
_SECONDS: Final = 10.0
"""How long one call copies: so long pods wait that begin to use the origin."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A copy under way, and its cut, None where its origin is a snapshot or all is copied."""

    copy: Entry
    cut: LogicalVolume | None
    done: int
    end: int


def filled(
    tools: Tools, seen: View, record: Record, origin: Entry, known: Entry | None, take: Take
) -> tuple[Entry, int]:
    """A copy, not complete otherwise, with all of the content of `origin`; and when that was cut,
    in nanoseconds, 0 for that of a snapshot.

    `known` is what was begun. Copies for a while, and raises GoesOn if more is left: others may
    want the origin. Raises Busy if too much was written meanwhile, NotThisVolume, NoSpace,
    Impossible, BackendFailed.
    """
    if origin.volume.kind != "thick" and not origin.record.reserve_bytes:
        raise Impossible(f"{origin.record.name} is neither linear nor striped: it is not copied")
    if record.overwrite or record.discard:
        # A cut keeps what is written over meanwhile, and gives back its room as it is.
        raise Impossible(
            f"what {origin.record.name} holds is to be overwritten or discarded at its end, which"
            " is not done with what a full copy of a logical volume leaves behind"
        )
    begun = _found(seen, record, origin, known)
    if begun is None:
        cut = cut_of(seen, record.name)
        if known is not None or cut is not None:
            _drop(tools, record.name, cut, known)
            if known is not None and cut is not None and cut.health:
                raise _full(cut, origin)
            # What was there before no longer holds: it is read again.
            seen = replace(seen, turn=OUTDATED)
        begun = _begin(tools, seen, record, origin, take)
    if begun.done < begun.end:
        begun = _further(tools, begun, origin)
    if begun.done < begun.end:
        raise GoesOn(
            f"{origin.record.name} is copied up to {begun.done} of {begun.end} bytes, to"
            f" {record.name}"
        )
    if begun.cut is not None:
        remove(tools, begun.cut, is_cut(record.name))
    elif origin.record.snapshot_of and not origin.record.reserve_bytes:
        tools.lvm.deactivate(origin.volume)
    return begun.copy, int(decode(begun.copy.volume.tags).get(CUT_AT, "0"))


def _found(seen: View, record: Record, origin: Entry, known: Entry | None) -> _Begun | None:
    """What was begun, if it can go on."""
    if known is None or has_content_of(known.record) != origin.record.name:
        return None
    size = known.volume.size_bytes
    if size < max(record.size_bytes, origin.content_bytes):
        return None
    cut, end = cut_of(seen, record.name), _end(known, origin)
    done = int(decode(known.volume.tags).get(COPIED, "0"))
    sound = cut is not None and not cut.health and cut.origin == origin.volume.name
    if done < end and not sound and not origin.record.snapshot_of:
        return None
    return _Begun(known, cut, done, end)


def _end(copy: Entry, origin: Entry) -> int:
    """What is beyond the origin's content has no filesystem yet, and nobody reads it; in a raw
    volume it is zeros."""
    return origin.content_bytes if fs_of(copy.record) else copy.volume.size_bytes


def _begin(tools: Tools, seen: View, record: Record, origin: Entry, take: Take) -> _Begun:
    has = origin.content_bytes
    size = max(has, lv_bytes(tools, seen, record, record.size_bytes))
    reserve = 0
    if not origin.record.snapshot_of:
        check_names(tools.of.group, cut_name(record.name))
        # LVM takes no more than a whole volume that is written anew would need.
        most = has + max(has // 64, seen.group.extent_bytes)
        reserve = lv_bytes(tools, seen, replace(record, option_class=""), _reserve(has, most))
        tools.active(origin.volume)

    fields = fields_of(replace(record, state="making", volume_uid="", cut_at=0))

    def make(now: View) -> None:
        for name in (record.name, cut_name(record.name)):
            if name in now.volumes:
                raise NotThisVolume(f"there is a volume {name} already, and it is not this one")
        tools.create(record.name, size, fields, option_class=record.option_class)
        if reserve:
            tags = {OWNER: POOL_OWNER, KIND: CUT, OF: record.name, CUT_AT: str(time.time_ns())}
            tools.lvm.cut(
                tools.of.group, origin.volume.name, cut_name(record.name), reserve, encode(tags)
            )

    take(seen, make, size + reserve)
    made = tools.created(seen.group, record.name, fields, option_class=record.option_class)
    copy = read_entry(made)
    cut = tools.made(cut_name(record.name)) if reserve else None
    if cut is not None and (cut.kind, cut.origin) != ("snapshot", origin.volume.name):
        raise BackendFailed(f"LVM says that it made a snapshot, and {cut.full_name} is none")
    return _Begun(copy, cut, 0, _end(copy, origin))


def _reserve(has: int, most: int) -> int:
    return min(max(has // _SHARE, _LEAST), most)


def _further(tools: Tools, begun: _Begun, origin: Entry) -> _Begun:
    """Copy for a while, and record how far that has come."""
    zeroing = replace(tools.zeroing, seconds=min(tools.zeroing.seconds, _SECONDS))
    name, has = begun.copy.record.name, origin.content_bytes
    source = tools.active(begun.cut or origin.volume)
    _refuse_lost(tools, begun, origin, source)
    volume = tools.active(begun.copy.volume)
    done, failure = begun.done, None
    try:
        if done < has:
            done = copy_for(source, volume, done, has, zeroing)
        else:
            done, _ = zero_for(volume.path, volume.device, done, zeroing)
    except OSError as error:
        failure = error
    # One that is full answers each read with an error.
    cut = begun.cut and tools.again(begun.cut)
    if cut is not None and cut.health:
        _drop(tools, name, cut, begun.copy)
        raise _full(cut, origin)
    if origin.record.reserve_bytes:
        _refuse_lost(tools, begun, origin, tools.again(source))
    if failure is not None:
        raise failure
    fields = {**decode(volume.tags), COPIED: str(done)}
    if cut is not None:
        fields[CUT_AT] = decode(cut.tags)[CUT_AT]
    volume = tools.retag(volume, fields)
    return replace(begun, copy=replace(begun.copy, volume=volume), cut=cut, done=done)


def _refuse_lost(tools: Tools, begun: _Begun, origin: Entry, source: LogicalVolume) -> None:
    """Drop the copy if its origin is a snapshot whose reserve was full: nothing can be read."""
    if origin.record.reserve_bytes and source.health == INVALID:
        _drop(tools, begun.copy.record.name, None, begun.copy)
        raise Impossible(lost(origin.record))


def _full(cut: LogicalVolume, origin: Entry) -> Busy:
    return Busy(
        f"more was written to {origin.record.name} while it was copied than the"
        f" {cut.size_bytes // _MIB} MiB that were set aside for that: the copy was dropped."
        " Try again when less is written, or use a thin pool"
    )


def copy_for(
    source: LogicalVolume, volume: LogicalVolume, start: int, end: int, zeroing: Zeroing
) -> int:
    """Copy what `source` holds from `start` on for as long as `zeroing` says; returns how far
    that is done and on disk. Raises InUse, NotABlockDevice, OSError."""
    until = time.monotonic() + zeroing.seconds
    piece = min(_PIECE, zeroing.piece)
    with (
        closed_after(exclusive_open(source.path, write=False, device=source.device)) as reading,
        closed_after(exclusive_open(volume.path, device=volume.device)) as fd,
    ):
        settled = start
        while start < end:
            data = os.pread(reading, min(piece, end - start), start)
            if not data:
                raise OSError(errno.ENXIO, "it became shorter while it was copied", source.path)
            write_at(fd, data, start)
            # A large volume must not push everybody else's data out of the page cache.
            os.posix_fadvise(reading, start, len(data), os.POSIX_FADV_DONTNEED)
            start += len(data)
            if start - settled >= _SETTLE:
                _settle(fd, settled, start)
                settled = start
            if time.monotonic() >= until:
                break
        _settle(fd, settled, start)
    return start


def _settle(fd: int, start: int, end: int) -> None:
    """Only what is on disk may be recorded as done."""
    os.fsync(fd)
    os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_DONTNEED)


def _drop(tools: Tools, name: str, cut: LogicalVolume | None, copy: Entry | None) -> None:
    """Take away what was begun, the cut first."""
    if cut is not None:
        remove(tools, cut, is_cut(name))
    if copy is not None:
        remove(tools, copy.volume, in_state("making"))
