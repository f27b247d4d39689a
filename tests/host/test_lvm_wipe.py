"""A device made unreadable in pieces: zeroed, each call for a while, or given back to its disk."""

import os
import threading
from pathlib import Path

import pytest

from localvolume.backends.lvm import wiping
from localvolume.backends.lvm.wiping import zero_for
from localvolume.backends.lvm.zeroing import Zeroing
from localvolume.backends.model import BackendFailed
from tests.host.support_devices import LoopDevice, loop_device
from tests.host.support_mounts import MNT_DETACH, mount, umount
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop")


def test_every_call_gets_on() -> None:
    """Also one whose time was over before the device was open: else it would never be done."""
    zeroing = Zeroing(piece=MIB, seconds=0.0)
    with loop_device(3 * MIB) as device:
        Path(device.path).write_bytes(b"sesame" * (3 * MIB // 6))
        told: list[tuple[int, bool]] = []
        start, done = 0, False
        while not done and len(told) < 5:
            start, done = zero_for(device.path, device.number, start, zeroing)
            told.append((start, done))
        assert told == [(MIB, False), (2 * MIB, False), (3 * MIB, True)]
        assert Path(device.path).read_bytes() == bytes(3 * MIB)


def test_it_is_stopped_between_two_pieces() -> None:
    """What is left is made unreadable later: the volume is not removed before."""
    size, stop = 40 * MIB, threading.Event()
    told: list[int] = []

    def tell(done: int) -> None:
        told.append(done)
        stop.set()

    with loop_device(size) as device:
        Path(device.path).write_bytes(b"sesame!!" * (size // 8))
        with pytest.raises(BackendFailed, match="stopped while its content was made unreadable"):
            wipe(device, "overwrite", stop, tell)
        assert told == [16 * MIB]
        content = Path(device.path).read_bytes()
        assert content == bytes(16 * MIB) + b"sesame!!" * (24 * MIB // 8)
        wipe(device, "overwrite")
        assert Path(device.path).read_bytes() == bytes(size)


def test_a_device_that_takes_no_discards_is_left_as_it_is(tmp_path: Path) -> None:
    """They are advice; and a ramfs gives nothing back."""
    told: list[int] = []
    mount("ramfs", str(tmp_path), "ramfs")
    try:
        with loop_device(MIB, backing=tmp_path / "disk") as device:
            Path(device.path).write_bytes(b"sesame!!" * (MIB // 8))
            wipe(device, "discard", told=told.append)
            assert Path(device.path).read_bytes() == b"sesame!!" * (MIB // 8)
    finally:
        umount(str(tmp_path), MNT_DETACH)
    assert told == []


def test_a_discard_that_fails_otherwise_is_told() -> None:
    """Else a volume would count as given back that is not."""
    with loop_device(MIB) as device:
        fd = os.open(device.path, os.O_RDWR)
        try:
            assert wiping.wipe_part(fd, 0, MIB, "discard", thin=False)
            with pytest.raises(OSError, match="Invalid argument"):
                wiping.wipe_part(fd, 1, 512, "discard", thin=False)
        finally:
            os.close(fd)


def wipe(
    device: LoopDevice,
    how: wiping.How,
    stop: threading.Event | None = None,
    told: wiping.Told = lambda done: None,
) -> None:
    stop = stop or threading.Event()
    wiping.wipe(device.path, device.number, how, thin=False, stop=stop, told=told)
