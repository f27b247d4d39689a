"""What LVM reports of volume groups and logical volumes (`--reportformat json`, lvmreport(7))."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec

GROUP_FIELDS: Final = (
    "vg_name,vg_uuid,vg_size,vg_free,vg_extent_size,vg_tags,vg_missing_pv_count,vg_permissions,"
    "vg_exported,vg_allocation_policy"
)
_OF_VOLUMES: Final = (
    "lv_name,lv_uuid,vg_name,vg_uuid,lv_size,lv_layout,lv_role,lv_tags,lv_active,lv_device_open,"
    "lv_suspended,lv_path,pool_lv,origin,data_percent,metadata_percent,lv_health_status,"
    "lv_permissions,lv_kernel_major,lv_kernel_minor,lv_snapshot_invalid"
)
VOLUME_FIELDS: Final = f"{_OF_VOLUMES},zero"
WHOLE: Final = (
    *("--configreport", "vg", "--options", GROUP_FIELDS),
    *("--configreport", "lv", "--options", _OF_VOLUMES),
    # Unlike `lvs`, it does not report fields of segments with the volumes.
    *("--configreport", "seg", "--options", "lv_uuid,zero"),
    *("--configreport", "pv", "--options", "pv_major,pv_minor"),
    *("--configreport", "pvseg", "--options", "pv_uuid,pv_allocatable,pvseg_size,segtype"),
)
"""The options of `fullreport` for what `vgs` and `lvs` report with the fields above."""

INVALID: Final = "invalid"
"""The health of a classic snapshot that was full: its content is lost."""

Kind = Literal["thick", "thin", "pool", "snapshot", "other"]


class BadReport(Exception):
    """LVM's answer is not a report: nothing is known, so nothing may be concluded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeGroup:
    """A volume group. `missing` of its physical volumes are absent: their data cannot be read.

    `writable`: neither read-only nor exported. Two groups may have the same name: LVM then refuses
    every command on either. `allocation` is the group's own policy ("normal", "contiguous", ...),
    "" if not reported.

    `free` holds the lengths, in extents, of the free runs of each physical volume on which LVM may
    allocate; None if only `vgs` was asked, whose `free_bytes` count the other ones, too. `disks`
    are the numbers (`major:minor`) of its physical volumes, empty if not all are known.
    """

    name: str
    uuid: str
    size_bytes: int
    free_bytes: int
    extent_bytes: int
    tags: frozenset[str] = frozenset()
    missing: int = 0
    writable: bool = True
    allocation: str = ""
    free: tuple[tuple[int, ...], ...] | None = None
    disks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalVolume:
    """One logical volume that is not hidden.

    `kind`: "pool" is a thin pool, "thin" a volume in one (a thin snapshot, too), "snapshot" a
    classic snapshot, "other" anything that we do not use (raid, caches, VDO). `size_bytes` is what
    its users see; for a classic snapshot, the room for changes. `path` is below /dev. `device` is
    `major:minor`, "" while it is not active. `open`: mounted, or held by a process or device; a
    thin pool is open while any volume in it is active. `suspended`: all of its I/O waits. `health`
    is "" if LVM knows of no fault ("partial", "out_of_data", "invalid": a full snapshot, ...).
    `zeroes`: a thin pool that hands out zeroed blocks only. `has_snapshots`: classic ones, which
    LVM would remove with it.
    """

    name: str
    uuid: str
    group: str
    size_bytes: int
    kind: Kind
    group_uuid: str = ""
    tags: frozenset[str] = frozenset()
    active: bool = False
    open: bool = False
    suspended: bool = False
    writable: bool = True
    path: str = ""
    device: str = ""
    pool: str = ""
    origin: str = ""
    data_percent: float | None = None
    metadata_percent: float | None = None
    health: str = ""
    zeroes: bool = False
    has_snapshots: bool = False

    @property
    def full_name(self) -> str:
        """`<group>/<name>`, as LVM's commands take it."""
        return f"{self.group}/{self.name}"


def read_groups(text: str) -> list[VolumeGroup]:
    """What `vgs` reports. Raises BadReport."""
    return [_group(row) for row in rows(text, "vg")]


def read_volumes(text: str) -> list[LogicalVolume]:
    """What `lvs` reports. Raises BadReport.

    A volume with several segments has a row for each, because `zero` is a field of segments.
    """
    found: dict[str, LogicalVolume] = {}
    for row in rows(text, "lv"):
        volume = _volume(row)
        found.setdefault(volume.uuid, volume)
    return list(found.values())


def read_whole(text: str) -> list[tuple[VolumeGroup, list[LogicalVolume]]]:
    """What `fullreport` (WHOLE) reports: each group with its volumes. Raises BadReport."""
    found = []
    for part in _reports(text):
        if missing := {"vg", "lv", "seg", "pvseg"} - part.keys():
            raise BadReport(f"LVM reports no {', '.join(sorted(missing))}")
        zero = {row.get("lv_uuid", ""): row.get("zero", "") for row in part["seg"]}
        told = [_volume(row | {"zero": zero.get(row.get("lv_uuid", ""), "")}) for row in part["lv"]]
        free, disks = _free(part["pvseg"]), _disks(part.get("pv", []))
        found += [(replace(_group(row), free=free, disks=disks), told) for row in part["vg"]]
    return found


class _Report(msgspec.Struct, frozen=True):
    """LVM's JSON; other keys beside the reports ("log", in newer releases) are ignored."""

    report: list[dict[str, list[dict[str, str]]]]


_decode: Final = msgspec.json.Decoder(_Report).decode


def rows(text: str, kind: str) -> list[dict[str, str]]:
    """The rows of a report: of groups ("vg") or volumes ("lv"). Raises BadReport."""
    return [row for report in _reports(text) for row in report.get(kind, [])]


def _reports(text: str) -> list[dict[str, list[dict[str, str]]]]:
    try:
        return _decode(text.encode()).report
    except msgspec.MsgspecError as error:
        raise BadReport(f"no report of LVM: {error}") from error


def _group(row: dict[str, str]) -> VolumeGroup:
    return VolumeGroup(
        name=field(row, "vg_name"),
        uuid=field(row, "vg_uuid"),
        size_bytes=number(row, "vg_size"),
        free_bytes=number(row, "vg_free"),
        extent_bytes=number(row, "vg_extent_size"),
        tags=_tags(row, "vg_tags"),
        missing=number(row, "vg_missing_pv_count"),
        writable=row.get("vg_permissions", "") == "writeable" and not row.get("vg_exported"),
        allocation=row.get("vg_allocation_policy", ""),
    )


def _free(segments: list[dict[str, str]]) -> tuple[tuple[int, ...], ...]:
    runs: dict[str, list[int]] = {}
    for row in segments:
        # A physical volume without extents has a row, too, but without any field of a segment.
        if row.get("segtype") == "free" and row.get("pv_allocatable") == "allocatable":
            runs.setdefault(field(row, "pv_uuid"), []).append(number(row, "pvseg_size"))
    return tuple(tuple(sizes) for sizes in runs.values())


def _disks(rows: list[dict[str, str]]) -> tuple[str, ...]:
    found = [(row.get("pv_major", ""), row.get("pv_minor", "")) for row in rows]
    if not all(word.isdigit() for numbers in found for word in numbers):
        return ()
    return tuple(sorted(":".join(numbers) for numbers in found))


def _volume(row: dict[str, str]) -> LogicalVolume:
    major, minor = row.get("lv_kernel_major", "-1"), row.get("lv_kernel_minor", "-1")
    health = row.get("lv_health_status", "")
    return LogicalVolume(
        name=field(row, "lv_name"),
        uuid=field(row, "lv_uuid"),
        group=field(row, "vg_name"),
        group_uuid=row.get("vg_uuid", ""),
        size_bytes=number(row, "lv_size"),
        kind=_kind(row),
        tags=_tags(row, "lv_tags"),
        active=row.get("lv_active", "") == "active",
        open=row.get("lv_device_open", "") == "open",
        suspended=row.get("lv_suspended", "") == "suspended",
        writable=row.get("lv_permissions", "").startswith("writeable"),
        path=row.get("lv_path", ""),
        device="" if "-1" in (major, minor) else f"{major}:{minor}",
        pool=row.get("pool_lv", ""),
        origin=row.get("origin", ""),
        data_percent=_percent(row, "data_percent"),
        metadata_percent=_percent(row, "metadata_percent"),
        health=INVALID if row.get("lv_snapshot_invalid") == "snapshot invalid" else health,
        zeroes=row.get("zero", "") == "zero",
        has_snapshots="thickorigin" in row.get("lv_role", "").split(","),
    )


def _kind(row: dict[str, str]) -> Kind:
    layout = set(row.get("lv_layout", "").split(","))
    if {"thin", "pool"} <= layout:
        return "pool"
    if "thin" in layout and row.get("pool_lv"):
        return "thin"
    if "snapshot" in row.get("lv_role", "").split(",") and row.get("origin"):
        return "snapshot"
    return "thick" if layout in ({"linear"}, {"striped"}) else "other"


def field(row: dict[str, str], key: str) -> str:
    """A value that is never empty. Raises BadReport."""
    value = row.get(key, "")
    if not value:
        raise BadReport(f"LVM reports nothing for {key}")
    return value


def number(row: dict[str, str], key: str) -> int:
    """A whole number. Raises BadReport."""
    value = field(row, key)
    if not (value.isascii() and value.isdigit()):
        raise BadReport(f"LVM reports {key} as {value!r}")
    return int(value)


def _percent(row: dict[str, str], key: str) -> float | None:
    value = row.get(key, "")
    if not value:
        return None
    try:
        return float(value)
    except ValueError as error:
        raise BadReport(f"LVM reports {key} as {value!r}") from error


def _tags(row: dict[str, str], key: str) -> frozenset[str]:
    return frozenset(tag for tag in row.get(key, "").split(",") if tag)
