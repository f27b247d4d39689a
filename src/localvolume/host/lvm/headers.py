"""Whether LVM has changed what it has on record of a volume group: read from its disks.

Each change moves LVM's text to another place in the metadata areas, and the area's header, of one
sector, says where that is and what its checksum is. So while the headers stay as they are, so does
all that is on record, whoever writes to the volumes. How full volumes are is not on record.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from localvolume.host.block import sysfs
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.entries import device_number

# Of LVM2, lib/format_text/layout.h and lib/label/label.h.
_SECTOR: Final = 512
_LABEL_SECTORS: Final = 4
_LABEL: Final = struct.Struct("<8sQII8s")
_LABELLED: Final = (b"LABELONE", b"LVM2 001")
_UUID_AND_SIZE: Final = 40
# Signed, as reading takes it: there is no disk so large.
_PLACE: Final = struct.Struct("<qq")
_NO_PLACE: Final = (0, 0)
_AREA: Final = slice(4, 20)
_AREA_SAYS: Final = b" LVM2 x[5A%r0N*>"


class _Unknown(Exception):
    """It is not as LVM writes it."""


def headers(disks: Sequence[str], dev: str = "/dev") -> tuple[bytes, ...] | None:
    """Labels and headers of the physical volumes with these numbers (`major:minor`), as they are on
    disk; None unless all can be read, and one of them has what is on record."""
    found: list[bytes] = []
    try:
        for disk in disks:
            found += _of_disk(disk, dev)
    except (_Unknown, OSError, struct.error):
        return None
    # Each has a label.
    return tuple(found) if len(found) > len(disks) else None


def _of_disk(disk: str, dev: str) -> list[bytes]:
    name = sysfs.uevent(sysfs.base_of(disk)).get("DEVNAME")
    if name is None:
        raise _Unknown
    fd = os.open(f"{dev}/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with closed_after(fd):
        if device_number(os.fstat(fd).st_rdev) != disk:
            raise _Unknown
        # What is cached may be what was there before.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        label = _label(os.pread(fd, _LABEL_SECTORS * _SECTOR, 0))
        areas = [os.pread(fd, _SECTOR, start) for start in _areas(label)]
    if any(area[_AREA] != _AREA_SAYS for area in areas):
        raise _Unknown
    return [label, *areas]


def _label(begin: bytes) -> bytes:
    for start in range(0, _LABEL_SECTORS * _SECTOR, _SECTOR):
        sector = begin[start : start + _SECTOR]
        if (sector[:8], sector[24:32]) == _LABELLED:
            return sector
    raise _Unknown


def _areas(label: bytes) -> Iterator[int]:
    """Where the metadata areas start: their places come after those of the data."""
    *_, offset, _ = _LABEL.unpack_from(label)
    at, lists = offset + _UUID_AND_SIZE, 0
    while lists < 2:
        place = _PLACE.unpack_from(label, at)
        at += _PLACE.size
        if place == _NO_PLACE:
            lists += 1
        elif lists:
            yield place[0]
