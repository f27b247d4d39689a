"""Which disks a filter means: a table of named predicates, each returning why not, or ""."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from localvolume.config.disks import LEAST_BYTES, NAMED_ONLY, DiskFilter
from localvolume.config.syntax import globs
from localvolume.disks.model import Disk
from localvolume.volumes.capacity import quantity

Predicate = Callable[[Disk, DiskFilter], str]


def first_reason(
    table: tuple[tuple[str, Predicate], ...], disk: Disk, wanted: DiskFilter
) -> tuple[str, str]:
    """The name of the first predicate that says no, and its reason; ("", "") where none does."""
    for code, predicate in table:
        if reason := predicate(disk, wanted):
            return code, reason
    return "", ""


def _kind(disk: Disk, wanted: DiskFilter) -> str:
    if wanted.match.partitions:
        return "" if disk.parent else "it is a whole disk"
    return f"it is a partition of {disk.parent}" if disk.parent else ""


def _min_size(disk: Disk, wanted: DiskFilter) -> str:
    least = LEAST_BYTES if wanted.match.min_bytes is None else wanted.match.min_bytes
    if disk.size_bytes >= least:
        return ""
    return f"it has {quantity(disk.size_bytes)}, less than {quantity(least)}"


def _max_size(disk: Disk, wanted: DiskFilter) -> str:
    most = wanted.match.max_bytes
    if most is None or disk.size_bytes <= most:
        return ""
    return f"it has {quantity(disk.size_bytes)}, more than {quantity(most)}"


def _model(disk: Disk, wanted: DiskFilter) -> str:
    return _pattern("model", disk.model, wanted.match.model)


def _vendor(disk: Disk, wanted: DiskFilter) -> str:
    return _pattern("vendor", disk.vendor, wanted.match.vendor)


def _pattern(what: str, value: str, pattern: str) -> str:
    if not pattern or globs.match(pattern, value):
        return ""
    return f"its {what} is {value!r}" if value else f"its {what} is not known"


def _rotational(disk: Disk, wanted: DiskFilter) -> str:
    if wanted.match.rotational is None or disk.rotational == wanted.match.rotational:
        return ""
    if disk.rotational is None:
        return "whether it rotates is not known"
    return "it rotates" if disk.rotational else "it does not rotate"


def _transport(disk: Disk, wanted: DiskFilter) -> str:
    asked = wanted.match.transport
    if asked and disk.transport != asked:
        return f"its transport is {disk.transport or 'not known'}"
    if not asked and disk.transport in NAMED_ONLY:
        return f"its transport is {disk.transport}, which a filter must name"
    return ""


def _by_id(disk: Disk, wanted: DiskFilter) -> str:
    pattern = wanted.match.by_id
    if not pattern or any(globs.match(pattern, link) for link in disk.links):
        return ""
    return "no link of that name in /dev/disk/by-id leads to it"


MEANT: Final[tuple[tuple[str, Predicate], ...]] = (
    ("partitions", _kind),
    ("minSize", _min_size),
    ("maxSize", _max_size),
    ("model", _model),
    ("vendor", _vendor),
    ("rotational", _rotational),
    ("transport", _transport),
    ("byId", _by_id),
)
