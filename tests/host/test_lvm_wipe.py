"""A device made unreadable in pieces: zeroed, each call for a while, or given back to its disk."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.backends.lvm import wiping
from localvolume.backends.lvm.wiping import zero_for
from localvolume.backends.lvm.zeroing import Zeroing
from localvolume.backends.model import BackendFailed
from localvolume.host.lvm.commands import LogicalVolume
from tests.host.support_devices import LoopDevice, loop_device
from tests.host.support_lvm_told import raw, told_pool
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


def test_it_ends_between_two_pieces_and_goes_on_from_there() -> None:
    """What is left is made unreadable later: the volume is not removed before."""
    size = 40 * MIB
    with loop_device(size) as device:
        Path(device.path).write_bytes(b"sesame!!" * (size // 8))
        done = wiping.wipe(volume(device), "overwrite", lambda done: done < 16 * MIB)
        assert done == (16 * MIB, size)
        content = Path(device.path).read_bytes()
        assert content == bytes(16 * MIB) + b"sesame!!" * (24 * MIB // 8)
        begun: list[int] = []

        def proceed(done: int) -> bool:
            begun.append(done)
            return True

        assert wiping.wipe(volume(device), "overwrite", proceed, start=16 * MIB) == (size, size)
        assert begun == [16 * MIB, 32 * MIB]
        assert Path(device.path).read_bytes() == bytes(size)


def test_of_a_thin_one_all_is_overwritten_though_each_call_does_a_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read ends early before a block that is bad, and a write after a signal."""
    read, write = os.pread, os.pwrite
    with loop_device(3 * MIB) as device:
        Path(device.path).write_bytes(b"sesame!!" * (3 * MIB // 8))
        monkeypatch.setattr(os, "pread", lambda fd, n, at: read(fd, min(n, 200 << 10), at))
        monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[: 40 << 10], at))
        thin = replace(volume(device), kind="thin")
        assert wiping.wipe(thin, "overwrite", lambda _: True) == (3 * MIB, 3 * MIB)
        assert Path(device.path).read_bytes() == bytes(3 * MIB)


def test_a_thin_one_that_ends_before_its_size_does_not_count_as_wiped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with loop_device(3 * MIB) as device:
        monkeypatch.setattr(os, "pread", lambda *_: b"")
        thin = replace(volume(device), kind="thin")
        with pytest.raises(OSError, match="it became shorter"):
            wiping.wipe(thin, "overwrite", lambda _: True)


def test_a_purge_stops_between_two_pieces(tmp_path: Path) -> None:
    """The agent is to end: the volume is still there, and the next life begins it again."""
    size, stop = 40 * MIB, threading.Event()
    told: list[tuple[int, int]] = []

    def tell(files: int, done: int) -> None:
        told.append((files, done))
        if done:
            stop.set()

    with loop_device(size) as device, told_pool(tmp_path, thin=False) as (store, lvm):
        Path(device.path).write_bytes(b"sesame!!" * (size // 8))
        major, minor = device.number.split(":")
        gone = raw(state="removed", overwrite=True, size_bytes=size)
        where = {"lv_path": device.path, "lv_kernel_major": major, "lv_kernel_minor": minor}
        lvm.holds(gone, size, **where)
        with pytest.raises(BackendFailed, match="stopped while its content was made unreadable"):
            store.purge(gone, stop=stop, progress=tell)
        assert told == [(0, 0), (0, 16 * MIB)]
        assert "pvc-1" in lvm.rows
        stop.clear()
        store.purge(gone, stop=threading.Event(), progress=lambda *_: None)
        assert "pvc-1" not in lvm.rows
        assert Path(device.path).read_bytes() == bytes(size)


def test_a_device_that_takes_no_discards_is_left_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are advice; and a ramfs gives nothing back."""
    mount("ramfs", str(tmp_path), "ramfs")
    try:
        with loop_device(MIB, backing=tmp_path / "disk") as device:
            Path(device.path).write_bytes(b"sesame!!" * (MIB // 8))
            done = wiping.wipe(volume(device), "discard", lambda _: True)
            assert done == (MIB, MIB)
            assert Path(device.path).read_bytes() == b"sesame!!" * (MIB // 8)
    finally:
        umount(str(tmp_path), MNT_DETACH)
    assert "takes no discards: it is removed without" in caplog.text


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


def volume(device: LoopDevice) -> LogicalVolume:
    """What LVM would say of a thick one that is active."""
    return LogicalVolume(
        name="pvc-1",
        uuid="u",
        group="vg",
        size_bytes=MIB,
        kind="thick",
        path=device.path,
        device=device.number,
    )
