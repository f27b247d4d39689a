"""What tells that a volume group may have changed: its disks' counters, and device-mapper."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.host.lvm.kernel import Device, device_of
from localvolume.host.lvm.traces import Traces, traces
from tests.suite.units import MIB

from .support_devices import LoopDevice, loop_device


@pytest.fixture
def disk() -> Iterator[LoopDevice]:
    with loop_device(MIB) as device:
        yield device


def direct(node: str, write: bytes = b"") -> None:
    """Read it past the cache, or write to it and wait until that is on the disk."""
    fd = os.open(node, os.O_RDWR)
    try:
        if write:
            os.pwrite(fd, write, 0)
            os.fsync(fd)
        else:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.pread(fd, 4096, 0)
    finally:
        os.close(fd)


@pytest.mark.needs("root", "loop")
def test_what_is_written_to_a_disk_is_told_and_what_is_read_is_not(disk: LoopDevice) -> None:
    direct(disk.path)
    before = traces("vg0", [disk.number])
    assert before is not None
    direct(disk.path)
    assert traces("vg0", [disk.number]) == before
    direct(disk.path, b"x" * 4096)
    assert traces("vg0", [disk.number]) != before


@pytest.mark.needs("root", "loop")
def test_without_a_disk_that_is_there_nothing_is_told(disk: LoopDevice) -> None:
    direct(disk.path)
    assert traces("vg0", []) is None
    assert traces("vg0", [disk.number, "259:1048575"]) is None


# --- of a kernel that the machine does not have ------------------------------------------------

GROUP_UUID = "abcdef-0123-4567-89ab-cdef-0123-456789"
VOLUME = "UVWXYZ-0123-4567-89ab-cdef-0123-456789"
STAT = "1 0 8 0 2 0 16 0 0 0 0 3 0 24 0 0 0"


class Sys:
    """A /sys with the disk 8:0 and one logical volume."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("dev/block/8:0/stat", STAT)
        self.write("dev/block/8:0/queue/iostats", "1")
        self.volume("dm-3", "v--g-lv")

    def write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text + "\n")

    def traces(self) -> Traces | None:
        return traces("v-g", ["8:0"], str(self.root))

    def device_of(self, name: str) -> Device | None:
        return device_of("v-g", GROUP_UUID, name, str(self.root))

    def volume(self, block: str, name: str, **changed: str) -> None:
        uuid = f"LVM-{GROUP_UUID}{VOLUME}".replace("-", "").replace("LVM", "LVM-")
        told = {"dm/name": name, "dm/uuid": uuid, "dm/suspended": "0", "dev": "253:3"}
        for path, text in ({**told, "size": "16"} | changed).items():
            self.write(f"block/{block}/{path}", text)


@pytest.fixture
def kernel(tmp_path: Path) -> Sys:
    return Sys(tmp_path)


@pytest.mark.parametrize(
    ("path", "text", "written"),
    [
        ("dev/block/8:0/stat", STAT.replace("16", "17"), True),
        ("dev/block/8:0/stat", STAT.replace("24", "25"), True),
        ("dev/block/8:0/diskseq", "4", False),
        ("block/dm-3/dm/suspended", "1", False),
        ("block/dm-3/dev", "253:4", False),
        ("block/dm-3/dm/name", "v--g-other", False),
    ],
)
def test_each_trace_of_a_change_is_told(kernel: Sys, path: str, text: str, written: bool) -> None:
    before = kernel.traces()
    assert before is not None
    kernel.write(path, text)
    now = kernel.traces()
    assert now not in (None, before)
    assert now is not None
    assert now.is_but_written(before) == written


def test_volumes_of_others_are_no_trace(kernel: Sys) -> None:
    before = kernel.traces()
    kernel.volume("dm-4", "v-g--lv")
    kernel.write("block/sda/dm/name", "v--g-lv")
    assert kernel.traces() == before


@pytest.mark.parametrize(
    ("path", "text"),
    [
        # A driver that counts nothing has not counted what LVM has read from it.
        ("dev/block/8:0/stat", STAT.replace("8", "0", 1)),
        ("dev/block/8:0/stat", "1 0 8 0 2 0 16 0 0 0 0"),
        ("dev/block/8:0/queue/iostats", "0"),
    ],
)
def test_a_disk_whose_writes_are_not_counted_tells_nothing(
    kernel: Sys, path: str, text: str
) -> None:
    kernel.write(path, text)
    assert kernel.traces() is None


def test_a_new_volume_is_found_in_the_kernel(kernel: Sys) -> None:
    assert kernel.device_of("lv") == Device(VOLUME, "253:3", 8192)
    assert kernel.device_of("other") is None


@pytest.mark.parametrize(
    "changed",
    [
        {"dm/uuid": "LVM-" + "0" * 64},
        {"dm/uuid": f"LVM-{GROUP_UUID}{VOLUME}-real".replace("-", "").replace("LVM", "LVM-")},
        {"dm/uuid": "CRYPT-" + "0" * 64},
        {"dm/suspended": "1"},
        {"dev": ""},
        {"size": ""},
    ],
)
def test_a_device_that_is_not_as_it_should_be_is_not_believed(
    kernel: Sys, changed: dict[str, str]
) -> None:
    kernel.volume("dm-3", "v--g-lv", **changed)
    assert kernel.device_of("lv") is None
