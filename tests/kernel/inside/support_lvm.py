"""Volume groups on the guest's disks d and e: fresh for each test, with all in them gone after it.

Tests of other modules take the fixtures from conftest.py: `lvm`, `volume_group`, `second_group`,
`thin_pool`.
"""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest

from localvolume.host.lvm import Lvm
from tests.host.support_devices import command
from tests.host.support_images import run_here
from tests.suite.units import MIB

EXTENT = 4 * MIB
DISKS = ("/dev/ubdd", "/dev/ubde")


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
    command("vgcreate", "--quiet", "--yes", "--physicalextentsize", "4m", name, disk)
    try:
        yield name
    finally:
        clear(name, disk)


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
        command("wipefs", "--quiet", "--all", disk, wait=60)


def devices(group: str) -> list[str]:
    """The kernel's devices of a group's volumes, hidden ones too."""
    return [name for name in told("name").split() if name.startswith(f"{group}-")]


def told(fields: str) -> str:
    """What dmsetup tells of all devices; it fails where one of them goes meanwhile."""
    asked = ("dmsetup", "info", "--columns", "--noheadings", "--options", fields)
    for _ in range(5):
        with contextlib.suppress(AssertionError):
            return command(*asked)
    return command(*asked)


def unknown_to_its_pool(group: str, name: str, pool: str) -> None:
    """Make a thin volume what a killed lvcreate may leave: on record, and its pool has none."""
    volume = f"{group}/{name}"
    command("lvchange", "--quiet", "--activate", "n", volume)
    number = command("lvs", "--noheadings", "--options", "thin_id", volume).strip()
    command("dmsetup", "message", f"{group}-{pool}-tpool", "0", f"delete {number}")
