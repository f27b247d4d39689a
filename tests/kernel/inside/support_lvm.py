"""Volume groups on the guest's disks d and e: fresh for each test, with all in them gone after it.

Tests of other modules take the fixtures from conftest.py: `lvm`, `volume_group`, `second_group`,
`thin_pool`.
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from localvolume.host.block import sysfs
from localvolume.host.block.blockdev import InUse, exclusive_open
from localvolume.host.lvm.commands import Lvm
from tests.host.support_devices import command
from tests.host.support_images import run_here
from tests.suite.units import MIB
from tests.suite.until import until

T = TypeVar("T")

EXTENT = 4 * MIB
DISKS = ("/dev/ubdd", "/dev/ubde")
#: 12 GiB. LVM is not shown loop devices.
LARGE_DISK = "/dev/ubdf"
#: LVM's label and metadata are before its first extent.
_HEAD_BYTES = MIB
#: What LVM wrote there, by the group, its disks, and how much of them it has.
_heads: dict[tuple[str | int | None, ...], list[bytes]] = {}


@pytest.fixture
def lvm() -> Lvm:
    return Lvm(run_here)


@pytest.fixture
def volume_group() -> Iterator[str]:
    """The name of an empty group of one disk: 127 extents of 4 MiB."""
    with group_on(DISKS[0], "vg0") as name:
        yield name


@pytest.fixture
def second_group() -> Iterator[str]:
    with group_on(DISKS[1], "vg1") as name:
        yield name


@pytest.fixture
def thin_pool(volume_group: str, lvm: Lvm) -> str:
    """The name of a thin pool in `volume_group`: 64 MiB, of which it zeroes what it hands out."""
    lvm.create_pool(volume_group, "pool", 64 * MIB)
    return "pool"


@contextlib.contextmanager
def group_on(disk: str, name: str) -> Iterator[str]:
    """A fresh group of 4 MiB extents on the disk; its devices may not be in use at the end."""
    begin(name, disk)
    try:
        yield name
    finally:
        clear(name, disk)


def begin(name: str, *disks: str, use_bytes: int | None = None) -> None:
    """Make a group of the disks, or of the first `use_bytes` of each.

    LVM makes it once; for each test after that what LVM has left on the disks is written again.
    """
    sizes = [_on(disk, lambda fd: os.lseek(fd, 0, os.SEEK_END)) for disk in disks]
    made = (name, *disks, use_bytes, *sizes)
    if made in _heads:
        for disk, head in zip(disks, _heads[made], strict=True):
            _write_head(disk, head)
        return
    if use_bytes is not None:
        size = f"{use_bytes}b"
        command("pvcreate", "--quiet", "--yes", "--setphysicalvolumesize", size, *disks)
    command("vgcreate", "--quiet", "--yes", "--physicalextentsize", "4m", name, *disks)
    _heads[made] = [_on(disk, _read_head) for disk in disks]


def _on(disk: str, work: Callable[[int], T]) -> T:
    """Nobody else has the disk meanwhile; who has it now is waited for."""

    def try_it() -> int | None:
        with contextlib.suppress(InUse):
            return exclusive_open(disk)
        return None

    fd = until(try_it, lambda fd: fd is not None, said=lambda: f"{disk} is in use")
    assert fd is not None
    try:
        return work(fd)
    finally:
        os.close(fd)


def _read_head(fd: int) -> bytes:
    # LVM writes beside the page cache.
    os.posix_fadvise(fd, 0, _HEAD_BYTES, os.POSIX_FADV_DONTNEED)
    head = os.pread(fd, _HEAD_BYTES, 0)
    assert len(head) == _HEAD_BYTES
    return head


def _write_head(disk: str, head: bytes) -> None:
    def write(fd: int) -> None:
        assert os.pwrite(fd, head, 0) == len(head)
        os.fsync(fd)

    _on(disk, write)


def clear(name: str, *disks: str) -> None:
    """Take the group away with everything in it, whatever state it is in.

    Not by LVM, which what a test has left suspended or half-made hinders. From the top: a thin
    pool whose disk is taken from under it keeps writers waiting. By force at the end only.
    """
    for force in ((), (), (), (), *[("--force",)] * 10):  # a layer each time
        for device in devices(name):
            remove = ["dmsetup", "remove", *force, device]
            subprocess.run(remove, capture_output=True, timeout=120)
        if not devices(name):
            break
        if force:
            # What was killed takes a moment to be gone, and has devices open until then.
            time.sleep(2)
    assert not devices(name), f"in use after the test: {devices(name)}"
    shutil.rmtree(f"/dev/{name}", ignore_errors=True)  # links to what is gone
    for disk in disks:
        # It has the disk for itself until then, too.
        _write_head(disk, bytes(_HEAD_BYTES))


def devices(group: str) -> list[str]:
    """The kernel's devices of a group's volumes, hidden ones too."""
    found = [sysfs.read(str(path)) for path in Path("/sys/block").glob("dm-*/dm/name")]
    # The kernel's names have each hyphen of LVM's twice.
    prefix = f"{group.replace('-', '--')}-"
    return [name for name in found if name and name.startswith(prefix)]


def classic_snapshot(group: str, origin: str, name: str, size_bytes: int) -> None:
    """As somebody else makes one of a thick volume, with that room for changes."""
    size = ("--size", f"{size_bytes}b")
    command("lvcreate", "--yes", "--snapshot", "--name", name, *size, f"{group}/{origin}")


def unknown_to_its_pool(group: str, name: str, pool: str) -> None:
    """Make a thin volume what a killed lvcreate may leave: on record, and its pool has none."""
    volume = f"{group}/{name}"
    command("lvchange", "--quiet", "--activate", "n", volume)
    number = command("lvs", "--noheadings", "--options", "thin_id", volume).strip()
    command("dmsetup", "message", f"{group}-{pool}-tpool", "0", f"delete {number}")
