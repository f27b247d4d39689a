"""How much may still be promised in a pool: a pure function of its configuration and a look."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from localvolume.backends.model import BackendName, PoolReport, Record
from localvolume.config.pools import PoolConfig

FULL_PERCENT: Final = 95
"""How full data or metadata of a thin pool may be: from there on no volume is made or grown in it.
Removing goes on, which is what helps: so it is no `problem`, which would stop everything."""

_OF_IMAGES = 92
"""Per cent of an image that its volume can hold at least, but for small ones on xfs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What the other pools on a pool's filesystem do to its room: all take theirs from the same.

    `promised_bytes` of the filesystem are what their volumes stand for, and `outstanding_bytes`
    what these may still take, of which `firm_bytes` in pools that do not overbook. `reserve_bytes`
    is the largest of their reserves, `available_bytes` the least that any of them found to be free
    (None: none of them could look). `unknown`: why nobody can tell what one of them has promised.
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
    """What those pools, all of one filesystem, do to the room of another one there.

    One that cannot be used has promised what it has promised: its records count, too.
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
                f"what pool {config.name} has promised of the same filesystem cannot be told:"
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
    """Bytes that so many of its filesystem are missing from a pool's room."""
    return -(-taken_bytes * _OF_IMAGES // 100) if backend == "image" else taken_bytes


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
    return sum(_stands_for(report, one, most_of(one)) for one in report.records.values())


def capacity(config: PoolConfig, report: PoolReport, others: Beside = NOBODY) -> int:
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

    What `others` on its filesystem have promised, and may still write, is missing from both. The
    largest reserve of all counts, and what was found to be free last. A pool that overbooks leaves
    to those that do not what these may still write.

    An image is larger than what its volume can hold: of a pool of images, that share is kept back.

    A logical volume that is thick has taken all it ever takes. Of a thin pool the books tell what
    its volumes may still write, others' volumes included; nearly full, it is not promised any more.
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
    """Bytes of its pool that a volume has now; None where nobody can tell."""
    usage = report.usage.get(record.name)
    if usage is None:
        return None
    return usage.used_bytes if usage.taken_bytes is None else usage.taken_bytes


def _stands_for(report: PoolReport, record: Record, most: int) -> int:
    """Bytes that a volume, which may come to hold `most`, counts with in the books."""
    taken = _taken(report, record)
    return taken if record.state == "removed" and taken is not None else most


def _outstanding(report: PoolReport, record: Record, most: int) -> int:
    """Bytes that an enforced volume, which may come to hold `most`, may still take from its pool's
    filesystem."""
    if record.state == "removed" or not record.enforced or record.backend == "lvm":
        return 0
    usage = report.usage.get(record.name)
    if usage is not None and usage.outstanding_bytes is not None:
        return usage.outstanding_bytes
    return max(0, most - (_taken(report, record) or 0))
