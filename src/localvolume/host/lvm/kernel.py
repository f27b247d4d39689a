"""A volume that LVM has just made, as the kernel knows it: LVM itself need not be asked again."""

from __future__ import annotations

from typing import Final, NamedTuple

from localvolume.host.block import sysfs
from localvolume.host.block.sysfs import listing, read

_UUID: Final = 32
_PARTS: Final = (6, 4, 4, 4, 4, 4, 6)
"""The lengths between the dashes that LVM writes into a UUID."""
_SECTOR: Final = 512


class Device(NamedTuple):
    """The device of an active volume."""

    uuid: str
    """The volume's."""
    number: str
    """``major:minor``."""
    size_bytes: int


def device_of(group: str, group_uuid: str, name: str, sys: str = sysfs.SYS) -> Device | None:
    """The device of the group's volume of that name; None unless all of it is as it should be."""
    wanted = "-".join(word.replace("-", "--") for word in (group, name))
    for block in listing(f"{sys}/block"):
        base = f"{sys}/block/{block}"
        if block.startswith("dm-") and read(f"{base}/dm/name") == wanted:
            return _device(base, group_uuid)
    return None


def _device(base: str, group_uuid: str) -> Device | None:
    maker, _, both = (read(f"{base}/dm/uuid") or "").partition("-")
    number, sectors = read(f"{base}/dev"), read(f"{base}/size") or ""
    of_group, uuid = both[:_UUID], both[_UUID:]
    ours = maker == "LVM" and of_group == group_uuid.replace("-", "") and len(uuid) == _UUID
    if not ours or not number or not sectors.isdigit() or read(f"{base}/dm/suspended") != "0":
        return None
    return Device(_dashed(uuid), number, int(sectors) * _SECTOR)


def _dashed(uuid: str) -> str:
    parts, start = [], 0
    for length in _PARTS:
        parts.append(uuid[start : start + length])
        start += length
    return "-".join(parts)
