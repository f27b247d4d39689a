"""What the key `disks` says: which raw disks may become volumes of which class."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

TRANSPORTS: Final = (
    "sata",
    "sas",
    "scsi",
    "nvme",
    "nvme-of",
    "virtio",
    "xen",
    "usb",
    "mmc",
    "iscsi",
    "fc",
    "loop",
)
"""How a disk may be attached, in the words of `match.transport`."""

NAMED_ONLY: Final = frozenset({"nvme-of", "usb", "mmc", "iscsi", "fc", "loop"})
"""They match only if `match.transport` names them: people plug them in, or others share them."""

LEAST_BYTES: Final = 1 << 30
"""Disks smaller than this do not match unless `minSize` is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskMatch:
    """Which disks match: all conditions given must hold. None or "" is no condition.

    Sizes are in bytes, both inclusive. `model`, `vendor` and `by_id` are patterns. `partitions`:
    only partitions match, not whole disks.
    """

    min_bytes: int | None = None
    max_bytes: int | None = None
    model: str = ""
    vendor: str = ""
    rotational: bool | None = None
    transport: str = ""
    by_id: str = ""
    partitions: bool = False

    def given(self) -> dict[str, str | int | bool]:
        """The conditions that are given, by the model's field."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value not in (None, "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFilter:
    """One filter: the disks that match become volumes of a class.

    `host_dir` and `mount_dir` are those of the class. `fs_type` is "" for a class of volumeMode
    Block: its disks are linked to and not formatted. `mkfs_options` are words for mkfs.
    """

    name: str
    class_name: str
    host_dir: str
    mount_dir: str
    match: DiskMatch
    fs_type: str = "ext4"
    mkfs_options: tuple[str, ...] = ()

    @property
    def block(self) -> bool:
        return not self.fs_type


@dataclass(frozen=True, slots=True, kw_only=True)
class DisksConfig:
    """The filters in order (the first that matches a disk counts), and the approved digests."""

    filters: tuple[DiskFilter, ...] = ()
    approved: frozenset[str] = frozenset()
