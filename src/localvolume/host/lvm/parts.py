"""Logical volumes and their hidden parts beside what the kernel has of them, for recovery."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localvolume.host.lvm.report import BadReport, field, number, rows

PART_FIELDS: Final = (
    "lv_name,lv_parent,lv_uuid,lv_path,lv_size,lv_layout,lv_role,lv_active,pool_lv,transaction_id,"
    "lv_kernel_major,lv_kernel_minor"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A logical volume, hidden ones too (their names are in brackets, which are left out).

    `parent` is the name of what a hidden part belongs to, "" of one that belongs to nothing.
    `path` leads to its device, "" for what is not to be opened by it. `size_bytes` is, of a classic
    snapshot, its own room; its device is as large as its origin. `device_bytes` is what the kernel
    has of it, 0 while it is not active. `pool_transaction`, of a thin pool: the number of
    its last change. `made_in_transaction`, of a thin volume: the pool's number before it was made.
    """

    name: str
    parent: str
    uuid: str
    path: str
    size_bytes: int
    active: bool
    classic_snapshot: bool
    device_bytes: int
    pool: str
    pool_transaction: int | None
    made_in_transaction: int | None

    @property
    def short(self) -> bool:
        """Whether the kernel has less of it than is on record."""
        return 0 < self.device_bytes < self.size_bytes and not self.classic_snapshot

    @property
    def unreachable(self) -> bool:
        """Whether it is active, and its path leads nowhere."""
        return self.active and bool(self.path) and not os.path.exists(self.path)


def read_parts(text: str) -> list[Part]:
    """What `lvs --all` reports of PART_FIELDS. Raises BadReport."""
    found: dict[str, Part] = {}
    for row in rows(text, "lv"):
        part = _part(row)
        found.setdefault(part.uuid, part)
    return list(found.values())


def pools_with_messages(text: str) -> list[str]:
    """The thin pools that LVM has messages for in its metadata (`pvck --dump metadata`).

    Raises BadReport where it is no metadata of a group with volumes.
    """
    found: dict[str, None] = {}
    volumes = False
    path: list[str] = []
    for line in text.splitlines():
        if line.endswith("{"):
            path.append(line.removesuffix("{").strip())
            volumes = volumes or path[1:] == ["logical_volumes"]
            # <group>, logical_volumes, <pool>, segment1, message1
            if path[1:2] == ["logical_volumes"] and path[4:] and path[4].startswith("message"):
                found[path[2]] = None
        elif line.strip() == "}" and path:
            path.pop()
    if not volumes:
        raise BadReport(f"no metadata of logical volumes: {text[:200]!r}")
    return list(found)


def _part(row: dict[str, str]) -> Part:
    said = row.get("transaction_id", "")
    transaction = int(said) if said.isascii() and said.isdigit() else None
    is_pool = {"thin", "pool"} <= set(row.get("lv_layout", "").split(","))
    return Part(
        name=field(row, "lv_name").strip("[]"),
        parent=row.get("lv_parent", "").strip("[]"),
        uuid=field(row, "lv_uuid"),
        path=row.get("lv_path", ""),
        size_bytes=number(row, "lv_size"),
        active=row.get("lv_active", "") == "active",
        classic_snapshot="thicksnapshot" in row.get("lv_role", "").split(","),
        device_bytes=_device_bytes(row),
        pool=row.get("pool_lv", "").strip("[]"),
        pool_transaction=transaction if is_pool else None,
        made_in_transaction=None if is_pool else transaction,
    )


def _device_bytes(row: dict[str, str]) -> int:
    major, minor = row.get("lv_kernel_major", "-1"), row.get("lv_kernel_minor", "-1")
    try:
        sectors = Path(f"/sys/dev/block/{int(major)}:{int(minor)}/size").read_text()
        return int(sectors) * 512
    except (OSError, ValueError):
        return 0
