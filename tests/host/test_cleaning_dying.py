"""Disks that die between two steps of a cleaning: it fails with what the disk answers, whatever was
about to come. The filesystem below the loop device is shut down, so that its I/O fails."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localvolume.cleaning.method import Method
from localvolume.cleaning.paces import CleaningPaces
from localvolume.cleaning.receipt import CleaningFailed, Progress
from tests.host.support_cleaning import DISCARD, RESET_SIGNATURES, block_target, fill, run_clean
from tests.host.support_devices import LoopDevice, command, filesystem, loop_device
from tests.host.test_cleaning_devices import VMFS_MAGIC, VMFS_PLACE
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4")

FS_IOC_SHUTDOWN = 0x8004587D  # linux/fs.h: _IOR('X', 125, __u32)


@pytest.fixture
def below() -> Iterator[Path]:
    with filesystem("ext4", size=128 * MIB) as where:
        yield where


@pytest.fixture
def disk(below: Path) -> Iterator[LoopDevice]:
    with loop_device(8 * MIB, backing=below / "disk") as device:
        fill(device)
        yield device


def dies(below: Path, step: str, calls: int) -> Callable[[Progress], None]:
    """Told of the progress of a cleaning: shut it down after so many calls of that step."""
    left = [calls]

    def told(progress: Progress) -> None:
        left[0] -= progress.step == step
        if not left[0]:
            left[0] = -1
            fd = os.open(below, os.O_RDONLY)
            try:
                fcntl.ioctl(fd, FS_IOC_SHUTDOWN, struct.pack("I", 2))  # without flushing
            finally:
                os.close(fd)

    return told


@pytest.mark.parametrize(
    ("method", "step", "calls", "said"),
    [
        pytest.param(DISCARD, "discarding", 1, "discarding: the device", id="discard"),
        pytest.param(
            RESET_SIGNATURES, "erasing signatures", 2, "last MiB: the device answers", id="edges"
        ),
    ],
)
async def test_after_the_note_nothing_else_fails_unheard(
    below: Path, disk: LoopDevice, method: Method, step: str, calls: int, said: str
) -> None:
    """Not taken for a device that cannot do it, for which there would be another way."""
    with pytest.raises(CleaningFailed, match=said) as failed:
        await run_clean(
            block_target(disk),
            method,
            progress=dies(below, step, calls),
            paces=CleaningPaces(progress=0.0),
        )
    assert failed.value.touched


async def test_wipefs_that_cannot_erase_is_heard() -> None:
    """The disk takes no more writes."""
    with loop_device(8 * MIB) as disk:
        with open(disk.path, "r+b", buffering=0) as file:
            file.seek(VMFS_PLACE)
            file.write(VMFS_MAGIC)

        def told(progress: Progress) -> None:
            if progress.step == "erasing signatures":
                command("blockdev", "--setro", disk.path)

        with pytest.raises(CleaningFailed, match=r"erasing signatures: wipefs: .*failed"):
            await run_clean(
                block_target(disk), RESET_SIGNATURES, progress=told, paces=CleaningPaces(progress=0)
            )
