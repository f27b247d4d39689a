"""Which disks a filter means, and which are never touched whatever it means: named predicates.

Each predicate of the three tables returns the reason why not, or "". A disk that a filter means is
judged from the outside first (sysfs). Only a disk that passes all of that is opened and judged from
the inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from localvolume.config.disks import LEAST_BYTES, NAMED_ONLY, DiskFilter
from localvolume.config.syntax import globs
from localvolume.disks.model import Disk, Inside
from localvolume.disks.plan.naming import LABEL, best_link, stable
from localvolume.volumes.capacity import quantity

Predicate = Callable[[Disk, DiskFilter], str]

LEAST_FOR: Final = {"ext4": 64 << 20, "xfs": 300 << 20, "": 1 << 20}
"""Bytes below which no filesystem of that type is made; "" stands for a link."""

_RESERVED: Final = re.compile(r"bios|boot|efi|esp\b|reserved|recovery|msr\b", re.IGNORECASE)
"""Partitions with such names may look empty but still be needed."""


def first_reason(
    table: tuple[tuple[str, Predicate], ...], disk: Disk, wanted: DiskFilter
) -> tuple[str, str]:
    """The name of the first predicate that says no, and its reason; ("", "") if none does."""
    for code, predicate in table:
        if reason := predicate(disk, wanted):
            return code, reason
    return "", ""


# --- what a filter means -----------------------------------------------------------------------


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
    ("model", lambda disk, wanted: _pattern("model", disk.model, wanted.match.model)),
    ("vendor", lambda disk, wanted: _pattern("vendor", disk.vendor, wanted.match.vendor)),
    ("rotational", _rotational),
    ("transport", _transport),
    ("byId", _by_id),
)


# --- from the outside ---------------------------------------------------------------------------


def _virtual(disk: Disk, _: DiskFilter) -> str:
    return "the kernel makes it of something else" if disk.virtual or not disk.transport else ""


def _partitioned(disk: Disk, _: DiskFilter) -> str:
    return f"it has partitions: {', '.join(disk.partitions)}" if disk.partitions else ""


def _held(disk: Disk, _: DiskFilter) -> str:
    return f"{', '.join(disk.holders)} is made from it" if disk.holders else ""


def _parent_held(disk: Disk, _: DiskFilter) -> str:
    if not disk.parent_holders:
        return ""
    return f"{', '.join(disk.parent_holders)} is made from its disk {disk.parent}"


def _reserved(disk: Disk, _: DiskFilter) -> str:
    if not disk.part_name or not _RESERVED.search(disk.part_name):
        return ""
    return f"its partition table calls it {disk.part_name!r}"


def _nameless(disk: Disk, _: DiskFilter) -> str:
    if not stable(disk.identity):
        return "it has neither WWN nor serial number: nothing tells it from another disk"
    if disk.parent and "partUuid" not in disk.identity:
        return "the partition has no UUID: nothing tells it from another"
    return ""


def _too_small(disk: Disk, wanted: DiskFilter) -> str:
    least = LEAST_FOR[wanted.fs_type]
    if disk.size_bytes >= least:
        return ""
    return f"{wanted.fs_type or 'a volume'} needs at least {quantity(least)}"


OUTSIDE: Final[tuple[tuple[str, Predicate], ...]] = (
    ("virtual", _virtual),
    ("removable", lambda disk, _: "it is removable" if disk.removable else ""),
    ("read-only", lambda disk, _: "it is read-only" if disk.read_only else ""),
    ("partitions", _partitioned),
    ("holders", _held),
    ("disk-holders", _parent_held),
    ("reserved", _reserved),
    ("nameless", _nameless),
    ("too-small", _too_small),
    ("misplaced", lambda disk, _: disk.misplaced),
)

# --- from the inside ----------------------------------------------------------------------------

_NOT_LOOKED_AT: Final = Inside(unknown="it has not been looked at")


def is_begun(disk: Disk, wanted: DiskFilter) -> bool:
    """Whether the disk holds nothing but a formatting of ours that was never finished.

    We begin only on a blank disk, and nobody sees the filesystem before it is finished.
    """
    inside = disk.inside or _NOT_LOOKED_AT
    claim = inside.claim
    if claim is None or wanted.block or claim.identity != stable(disk.identity):
        return False
    if not inside.signature and not inside.fs_uuid:
        return True
    # Depending on its features, libblkid takes an ext4 for an ext2 or ext3.
    same = inside.signature.rstrip("23") in (inside.fs_type, inside.fs_type.rstrip("4"))
    ours = inside.fs_uuid == claim.uuid and same
    return ours and not inside.fs_was_mounted


def _used(disk: Disk, _: DiskFilter) -> str:
    users = (disk.inside or _NOT_LOOKED_AT).users
    return f"it is in use: {', '.join(users)}" if users else ""


def _mounted(disk: Disk, _: DiskFilter) -> str:
    mounts = (disk.inside or _NOT_LOOKED_AT).mounts
    return f"it is mounted at {', '.join(mounts)}" if mounts else ""


def _exclusive(disk: Disk, _: DiskFilter) -> str:
    in_use = (disk.inside or _NOT_LOOKED_AT).in_use
    return f"something has opened it exclusively: {in_use}" if in_use else ""


def _signature(disk: Disk, wanted: DiskFilter) -> str:
    inside = disk.inside or _NOT_LOOKED_AT
    found = inside.signature or inside.fs_type
    if not found or is_begun(disk, wanted):
        return ""
    if inside.fs_label == LABEL:
        return f"it holds {found} that was made here, under a plan that is not approved any more"
    return f"it holds {found}"


def _data(disk: Disk, wanted: DiskFilter) -> str:
    at = (disk.inside or _NOT_LOOKED_AT).data_at
    if at is None or is_begun(disk, wanted):
        return ""
    return (
        f"it is not blank: there is data at byte {at}, without a signature that is known; format it"
        " yourself, or overwrite it with zeros (blkdiscard -z), if nobody needs it"
    )


def _claimed(disk: Disk, wanted: DiskFilter) -> str:
    if (disk.inside or _NOT_LOOKED_AT).claim is None or is_begun(disk, wanted):
        return ""
    return "its formatting was begun here, and something else was written since, or it was copied"


def _offered(disk: Disk, _: DiskFilter) -> str:
    return f"{', '.join(disk.offered)} leads to it" if disk.offered else ""


def _linkless(disk: Disk, wanted: DiskFilter) -> str:
    if not wanted.block or best_link(disk):
        return ""
    return "there is no link to it in /dev/disk/by-id"


INSIDE: Final[tuple[tuple[str, Predicate], ...]] = (
    ("unknown", lambda disk, _: (disk.inside or _NOT_LOOKED_AT).unknown),
    ("mounts", _mounted),
    ("users", _used),
    ("exclusive", _exclusive),
    ("signature", _signature),
    ("claim", _claimed),
    ("data", _data),
    ("offered", _offered),
    ("named", lambda disk, _: disk.named),
    ("taken", lambda disk, _: disk.taken),
    ("place", lambda disk, _: disk.place),
    ("by-id", _linkless),
)
