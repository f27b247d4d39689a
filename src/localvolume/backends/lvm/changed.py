"""Which bytes of a thin snapshot are data, and which differ from those of another snapshot.

No data are read: what lies in one block of the pool in both is equal, as the kernel writes to no
block that two volumes share, and nobody writes to snapshots. All else is named, whether or not it
differs: more may be named than has changed, never less.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from localvolume.backends.lvm.tools import Tools
from localvolume.backends.lvm.view import View
from localvolume.backends.model import Blocks, Impossible
from localvolume.host.lvm.commands import BadReport, LogicalVolume, LvmFailed, VolumeInUse
from localvolume.host.lvm.errors import LvmUnfinished
from localvolume.host.lvm.thindelta import Range, add
from localvolume.host.lvm.thinmetadata import READING

_MOST: Final = 50_000
"""Ranges in one answer: some 8 MB of memory."""


def blocks(
    tools: Tools, seen: View, mine: LogicalVolume, base: LogicalVolume | None, start: int
) -> Blocks:
    """The data of `mine` from `start` on; with a `base`, what may differ from that.

    Raises Impossible if nobody can tell.
    """
    pool, other = seen.pool, base or mine
    if pool is None or {mine.kind, other.kind} != {"thin"}:
        raise Impossible(
            f"{mine.full_name} is in no thin pool: it is not known which of its blocks have changed"
        )
    if start >= mine.size_bytes:
        return Blocks(ranges=(), until=mine.size_bytes, total_bytes=mine.size_bytes)
    try:
        if READING in pool.tags:
            tools.lvm.release_left(pool)
        found = tools.lvm.compared(pool, mine, other)
    except (VolumeInUse, LvmUnfinished):
        raise  # what helps is to ask again
    except (LvmFailed, BadReport) as error:
        raise Impossible(f"{pool.full_name} does not tell what has changed: {error}") from error
    if base is None:
        return page(found.shared, mine.size_bytes, mine.size_bytes, start)
    return page(found.differing, mine.size_bytes, base.size_bytes, start)


def page(ranges: Iterable[Range], size: int, base: int, start: int, most: int = _MOST) -> Blocks:
    """What of the ranges is to be told of a volume of that size from `start` on, `most` of it.

    All that is beyond the end of the `base` differs.
    """
    told: list[Range] = []
    both = min(base, size)
    parts = ((begin, min(begin + length, both)) for begin, length in ranges)
    for begin, end in (*parts, (both, size)):
        at = max(begin, start)
        if at >= end:
            continue
        if len(told) == most and sum(told[-1]) != at:
            return Blocks(ranges=told, until=at, total_bytes=size)
        add(told, at, end - at)
    return Blocks(ranges=told, until=size, total_bytes=size)
