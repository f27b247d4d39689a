"""How much may still be promised in a pool: a pure function of its configuration and a look."""

from __future__ import annotations

from typing import Final

from localvolume.backends.model import PoolReport, Record
from localvolume.config.pools import PoolConfig

FULL_PERCENT: Final = 95
"""How full data or metadata of a thin pool may be: from there on no volume is made or grown in it.
Removing goes on, which is what helps: so it is no `problem`, which would stop everything."""

_OF_IMAGES = 92
"""Per cent of an image that its volume can hold at least, but for small ones on xfs."""


def most_bytes(size_bytes: int, *limits: int | None) -> int:
    """What a volume of that size may come to hold: its class may set limits above the size.

    Where a soft limit is the only one, that: the kernel lets it be exceeded for a while alone.
    """
    return max(size_bytes, *(limit or 0 for limit in limits))


def most_of(record: Record) -> int:
    """What the volume of a record may come to hold."""
    return most_bytes(record.size_bytes, record.soft_bytes, record.hard_bytes)


def promised(report: PoolReport) -> int:
    """Bytes that the records of a pool stand for.

    A volume counts with all it may come to hold from the moment it is begun. A removed one counts
    with what it still takes, where that is known: nothing can be added to it.
    """
    total = 0
    for record in report.records.values():
        taken = _taken(report, record)
        total += taken if record.state == "removed" and taken is not None else most_of(record)
    return total


def room(config: PoolConfig, report: PoolReport) -> int:
    """Bytes that may still be promised, 0 where nothing may.

    Two bounds, and the lower one counts. By the books: what is not reserved, times `overbook`, less
    what is promised. By the disk: what is available now and not reserved; unless the pool overbooks
    also less what its volumes may still write.

    That is counted once. What a volume holds is missing from `available_bytes` already, so only the
    rest of its size is subtracted. Where nobody can tell what it holds, the whole size is: too
    little room is promised then, never too much. Of an image counts what its file has no blocks
    for, whatever the filesystem in it says: what a tenant reserves in that takes none, and what is
    discarded in it gives them back, also where all were allocated once. Volumes without an enforced
    size are in the books alone: what they may write has no bound.

    An image is larger than what its volume can hold: of a pool of images, that share is kept back.

    A logical volume that is thick has taken all it ever takes. Of a thin pool the books tell what
    its volumes may still write, others' volumes included; nearly full, it is not promised any more.
    """
    if report.problem or report.unwell or is_full(report):
        return 0
    books = int((report.total_bytes - config.reserve_bytes) * config.overbook)
    books -= promised(report) + report.foreign_bytes
    disk = report.available_bytes - config.reserve_bytes
    if config.overbook <= 1:
        disk -= sum(_outstanding(report, record) for record in report.records.values())
    left = max(0, min(books, disk))
    left -= left % report.unit_bytes
    return left * _OF_IMAGES // 100 if config.backend == "image" else left


def is_full(report: PoolReport) -> bool:
    """Whether a thin pool's data or metadata is so full that nothing more may be promised."""
    percents = (report.data_percent, report.metadata_percent)
    return any(percent is not None and percent >= FULL_PERCENT for percent in percents)


def _taken(report: PoolReport, record: Record) -> int | None:
    """Bytes of its pool that a volume has now; None where nobody can tell."""
    usage = report.usage.get(record.name)
    if usage is None:
        return None
    return usage.used_bytes if usage.taken_bytes is None else usage.taken_bytes


def _outstanding(report: PoolReport, record: Record) -> int:
    """Bytes that an enforced volume may still take from its pool's filesystem."""
    if record.state == "removed" or not record.enforced or record.backend == "lvm":
        return 0
    usage = report.usage.get(record.name)
    if usage is not None and usage.outstanding_bytes is not None:
        return usage.outstanding_bytes
    return max(0, most_of(record) - (_taken(report, record) or 0))
