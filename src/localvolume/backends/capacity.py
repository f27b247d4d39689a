"""How much may still be promised in a pool: a pure function of its configuration and report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from localvolume.backends.model import BackendName, PoolReport, Record, Usage
from localvolume.config.pools import PoolConfig

FULL_PERCENT: Final = 95
"""From this percentage of a thin pool's data or metadata on, no volume is made or grown in it.
Volumes are still removed, which helps: so this is no `problem`, which would stop everything."""

_OF_IMAGES = 91
"""The percentage of what an image takes that its volume can hold at least: 92 of 100 bytes of the
file, except for small xfs ones, and one more is for the maps that tell where its blocks lie."""


_WRITTEN_MEANWHILE = 64 << 20
"""Bytes that may be written to a volume from a look at it until a snapshot is cut: that is not made
if it holds more than was found room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What the other pools on a pool's filesystem take from its capacity: all share its space.

    `promised_bytes` is what their volumes stand for, `outstanding_bytes` what these may still take,
    and `firm_bytes` the part of it in pools that do not overbook. `reserve_bytes` is the largest of
    their reserves, `available_bytes` the least that any of them found free (None if none of them
    could look). `unknown` says why nobody can tell what one of them has promised.
    """

    names: tuple[str, ...] = ()
    promised_bytes: int = 0
    outstanding_bytes: int = 0
    firm_bytes: int = 0
    reserve_bytes: int = 0
    available_bytes: int | None = None
    unknown: str = ""


NOBODY: Final = Beside()


def beside(others: Iterable[tuple[PoolConfig, PoolReport]]) -> Beside:
    """What those pools, all of one filesystem, take from the capacity of another one there.

    A pool that cannot be used counts, too: what its records promise stays promised.
    """
    names, unknown = [], ""
    promises = outstanding = firm = reserve = 0
    available: list[int] = []
    for config, report in others:
        names.append(config.name)
        reserve = max(reserve, config.reserve_bytes)
        if not report.problem:
            available.append(report.available_bytes)
        if report.uncounted:
            unknown = (
                f"it is not known what pool {config.name} has promised of the same filesystem:"
                f" {report.uncounted}"
            )
        for record in (*report.records.values(), *report.dormant.values()):
            most = price(record.backend, most_of(record))
            promises += _stands_for(report, record, most)
            left = _outstanding(report, record, most)
            outstanding += left
            firm += left if config.overbook <= 1 else 0
    return Beside(
        names=tuple(names),
        promised_bytes=promises,
        outstanding_bytes=outstanding,
        firm_bytes=firm,
        reserve_bytes=reserve,
        available_bytes=min(available, default=None),
        unknown=unknown,
    )


def price(backend: BackendName, size_bytes: int) -> int:
    """Bytes of its filesystem that a volume of that size takes: an image is larger than that."""
    return -(-size_bytes * 100 // _OF_IMAGES) if backend == "image" else size_bytes


def worth(backend: BackendName, taken_bytes: int) -> int:
    """Bytes that a pool's capacity shrinks by when that many of its filesystem are taken."""
    return -(-taken_bytes * _OF_IMAGES // 100) if backend == "image" else taken_bytes


def most_bytes(size_bytes: int, *limits: int | None) -> int:
    """What a volume of that size may come to hold: its class may set limits above the size.

    A soft limit counts if it is the only one: the kernel lets it be exceeded only for a while.
    """
    return max(size_bytes, *(limit or 0 for limit in limits))


def most_of(record: Record) -> int:
    """What the volume of a record may come to hold; what a snapshot holds never becomes more."""
    if record.snapshot_of:
        return record.holds_bytes
    return most_bytes(record.size_bytes, record.soft_bytes, record.hard_bytes)


def most_of_cut(origin: Record, usage: Usage | None) -> int:
    """What a snapshot of that volume, cut now, may come to hold."""
    used = usage.used_bytes if usage is not None else None
    taken = usage.taken_bytes if usage is not None else None
    if origin.backend == "image" and usage is not None and taken is not None:
        # Its file has no blocks yet for what is written from here on. It is larger than the volume,
        # and has never more than its size.
        most = max(most_of(origin), taken + (usage.outstanding_bytes or 0))
        return min(most, max(used or 0, taken) + _WRITTEN_MEANWHILE)
    if used is None or (origin.backend == "lvm" and not origin.sparse):
        # Of a thick volume all is copied.
        return most_of(origin)
    # What a filesystem has freed is still in the blocks of its device.
    holds = max(used, taken or 0)
    if origin.backend == "btrfs":
        # What is written is counted when it is on disk.
        holds += _WRITTEN_MEANWHILE
    return min(most_of(origin), holds) if origin.enforced else holds


def promised(report: PoolReport) -> int:
    """Bytes that the records of a pool stand for.

    A volume counts with all that it may come to hold as soon as it is begun. A removed one counts
    with what it still takes, if that is known: nothing can be added to it.
    """
    return sum(_stands_for(report, one, most_of(one)) for one in report.records.values())


def capacity(config: PoolConfig, report: PoolReport, others: Beside = NOBODY) -> int:
    """Bytes that may still be promised; 0 if none.

    There are two bounds, and the lower one counts. By the books: what is not reserved, times
    `overbook`, less what is promised. By the disk: what is available now and not reserved; unless
    the pool overbooks, also less what its volumes may still write.

    Nothing is subtracted twice. What a volume holds is missing from `available_bytes` already, so
    only the rest of its size is subtracted. If nobody can tell what it holds, the whole size is:
    this promises too little, never too much. For an image, the part of its file that has no blocks
    counts, whatever the filesystem in it says: space that a tenant reserves there takes no blocks,
    and discarding gives blocks back, even if the whole file was allocated once. Volumes without an
    enforced size are in the books only: nothing limits what they may write.

    Both bounds leave out what the `others` on its filesystem have promised, and may still write.
    The largest reserve and the smallest finding of free space count. A pool that overbooks leaves
    alone what volumes in pools that do not overbook may still write.

    An image is larger than its volume, and takes maps of its blocks: a pool of images keeps that
    share back.

    A thick logical volume has taken all that it ever takes. For a thin pool the books tell what all
    its volumes may still write, foreign ones included; one that is nearly full promises no more.
    """
    if report.problem or report.unwell or is_full(report) or others.unknown:
        return 0
    reserve = max(config.reserve_bytes, others.reserve_bytes)
    books = int((report.total_bytes - reserve) * config.overbook)
    books -= promised(report) + report.foreign_bytes + others.promised_bytes
    disk = report.available_bytes - reserve
    if others.available_bytes is not None:
        disk = min(report.available_bytes, others.available_bytes) - reserve
    if config.overbook <= 1:
        disk -= others.outstanding_bytes
        disk -= sum(_outstanding(report, one, most_of(one)) for one in report.records.values())
    else:
        disk -= others.firm_bytes
    left = max(0, min(books, disk))
    left -= left % report.unit_bytes
    return left * _OF_IMAGES // 100 if config.backend == "image" else left


def is_full(report: PoolReport) -> bool:
    """Whether a thin pool's data or metadata is so full that nothing more may be promised."""
    percents = (report.data_percent, report.metadata_percent)
    return any(percent is not None and percent >= FULL_PERCENT for percent in percents)


def _taken(report: PoolReport, record: Record) -> int | None:
    """Bytes of its pool that a volume takes now; None if unknown."""
    usage = report.usage.get(record.name)
    if usage is None:
        return None
    return usage.used_bytes if usage.taken_bytes is None else usage.taken_bytes


def _stands_for(report: PoolReport, record: Record, most: int) -> int:
    """Bytes that a volume counts with in the books; `most` is what it may come to hold."""
    taken = _taken(report, record)
    return taken if record.state == "removed" and taken is not None else most


def _outstanding(report: PoolReport, record: Record, most: int) -> int:
    """Bytes that an enforced volume may still take from its pool's filesystem; `most` is what it
    may come to hold."""
    if record.state == "removed" or not record.enforced or record.backend == "lvm":
        return 0
    usage = report.usage.get(record.name)
    if usage is not None and usage.outstanding_bytes is not None:
        return usage.outstanding_bytes
    return max(0, most - (_taken(report, record) or 0))
