"""The headers of LVM's metadata areas, on disks that somebody made up."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.host.lvm.headers import headers
from tests.suite.units import MIB

from .support_devices import LoopDevice, loop_device

pytestmark = pytest.mark.needs("root", "loop")

AREA, SECOND = 4096, MIB // 2
DATA = (MIB, 0)
END = (0, 0)


def label(*places: tuple[int, int], sector: int = 1, kind: bytes = b"LVM2 001") -> bytes:
    """The first sectors of a physical volume with these places on its label."""
    said = struct.pack("<8sQII8s", b"LABELONE", sector, 0, 32, kind) + bytes(40)
    said += b"".join(struct.pack("<qq", *place) for place in places)
    return bytes(512 * sector) + said.ljust(512, b"\0")


def area(checksum: bytes) -> bytes:
    return (b"crc!" + b" LVM2 x[5A%r0N*>" + bytes(84) + checksum).ljust(512, b"\0")


@pytest.fixture
def disk() -> Iterator[LoopDevice]:
    with loop_device(MIB) as device:
        yield device


def write(disk: LoopDevice, *what: tuple[int, bytes]) -> None:
    fd = os.open(disk.path, os.O_WRONLY)
    try:
        for start, content in what:
            os.pwrite(fd, content, start)
        os.fsync(fd)
    finally:
        os.close(fd)


def test_each_area_is_read(disk: LoopDevice) -> None:
    for sector in range(4):
        begin = label(DATA, END, (AREA, 1000), (SECOND, 1000), END, sector=sector)
        write(disk, (0, begin.ljust(2048, b"\0")), (AREA, area(b"one")), (SECOND, area(b"one")))
        before = headers([disk.number])
        assert before == (begin[-512:], area(b"one"), area(b"one"))
        write(disk, (MIB - 512, b"data" * 128))
        assert headers([disk.number]) == before
        write(disk, (SECOND, area(b"two")))
        assert headers([disk.number]) == (begin[-512:], area(b"one"), area(b"two"))


def test_a_disk_need_not_have_what_another_has(disk: LoopDevice) -> None:
    write(disk, (0, label(DATA, END, (AREA, 1000), END)), (AREA, area(b"one")))
    with loop_device(MIB) as other:
        write(other, (0, label(DATA, END, END)))
        found = headers([disk.number, other.number])
        assert found is not None
        assert len(found) == 3
        # What changes is nowhere.
        assert headers([other.number]) is None


@pytest.mark.parametrize(
    "content",
    [
        (),
        ((0, label(DATA, END, (AREA, 1000), END, kind=b"LVM3 001")), (AREA, area(b"one"))),
        ((0, label(DATA, END, (AREA, 1000), END, sector=4)), (AREA, area(b"one"))),
        ((0, label(DATA, END, (AREA, 1000), END)), (AREA, b"nothing of LVM's")),
        ((0, label(DATA, END, (1 << 40, 1000), END)), (AREA, area(b"one"))),
        ((0, label(DATA, END, (-(1 << 63), 1000), END)), (AREA, area(b"one"))),
        # Its lists have no end.
        ((0, label(DATA, END, *[(AREA, 1000)] * 26)), (AREA, area(b"one"))),
    ],
)
def test_what_is_not_as_lvm_writes_it_says_nothing(
    disk: LoopDevice, content: tuple[tuple[int, bytes], ...]
) -> None:
    write(disk, *content)
    assert headers([disk.number]) is None


def test_a_disk_that_cannot_be_read_says_nothing(disk: LoopDevice) -> None:
    write(disk, (0, label(DATA, END, (AREA, 1000), END)), (AREA, area(b"one")))
    assert headers([disk.number]) is not None
    assert headers([disk.number, "259:1048575"]) is None
    assert headers([disk.number], dev="/dev/none") is None
    assert headers([]) is None


def test_another_disk_of_its_name_is_not_it(disk: LoopDevice, tmp_path: Path) -> None:
    write(disk, (0, label(DATA, END, (AREA, 1000), END)), (AREA, area(b"one")))
    with loop_device(MIB) as other:
        (tmp_path / os.path.basename(disk.path)).symlink_to(other.path)
        assert headers([disk.number], dev=str(tmp_path)) is None
    (tmp_path / os.path.basename(disk.path)).unlink()
    (tmp_path / os.path.basename(disk.path)).symlink_to(disk.path)
    assert headers([disk.number], dev=str(tmp_path)) is not None
