"""Disks that hang, lie, fill up, fail and go away while they are cleaned: neighbours do not notice.

Whatever happens, the volume is not offered before it is clean, somebody is told, and it goes on by
itself once the disk is well again.
"""

import contextlib
import os
import threading
from pathlib import Path

import pytest

from localvolume.cleaning.paces import CleaningPaces
from localvolume.host.block import blockdev
from tests.cluster.support_agent import Class, Lab, Volume
from tests.cluster.support_endpoints import samples
from tests.host.support_devices import LoopDevice, command, frozen, loop_device, spare_loop_name
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


@pytest.fixture(autouse=True)
def impatient(lab: Lab) -> None:
    """Seconds in place of minutes."""
    lab.hurry(
        first_wait=0.5,
        longest_wait=1.0,
        look_again=0.5,
        stale=0.3,
        cleaning=CleaningPaces(first_slice=1.0),
    )


class Scene:
    """A class with a disk that is about to fail and a good neighbour; each has had a tenant."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.fs: Class = lab.add_class("fs")
        self.raw: Class = lab.add_class("raw", volumeMode="Block")

    def filesystem(self, entry: str) -> Path:
        return self.lab.mount(self.lab.disk(), self.fs.path(entry))

    def device(self, entry: str, size: int = 64 * MIB) -> LoopDevice:
        device = self.lab.raw_disk(size)
        self.lab.link(device, self.raw.path(entry))
        return device

    def refused(self, volume: Volume, text: str) -> None:
        """An Event says so, a metric counts it, and the volume is not offered."""
        name = volume["metadata"]["name"]
        self.lab.event(name, "VolumeFailedDelete", text)
        self.lab.until(self.failures, lambda count: count > 0)
        found = self.lab.volume(name)
        assert found
        assert found["metadata"]["uid"] == volume["metadata"]["uid"]
        assert found["metadata"]["deletionTimestamp"]

    def failures(self) -> float:
        name = "local_volume_provisioner_persistentvolume_delete_failed_total"
        return sum(value for _, value in samples(self.lab.port, name))

    def served(self) -> None:
        """A neighbour goes its whole round meanwhile."""
        where = self.filesystem("neighbour")
        first = self.lab.published(self.fs, "neighbour")
        claim = self.lab.bound(first)
        (where / "secret").write_text("tenant")
        self.lab.delete_claim(claim)
        self.lab.published(self.fs, "neighbour", unlike=first["metadata"]["uid"])
        assert not (where / "secret").exists()
        assert self.lab.http("/healthz")[0] == 200


@pytest.fixture
def scene(lab: Lab) -> Scene:
    return Scene(lab)


def test_a_disk_that_hangs_while_it_is_cleaned(scene: Scene) -> None:
    lab = scene.lab
    # Time enough for a step that does not hang, on a busy machine too.
    lab.hurry(cleaning=CleaningPaces(first_slice=1.0, step=5.0))
    where = scene.filesystem("disk")
    lab.start()
    first = lab.published(scene.fs, "disk")
    claim = lab.bound(first)
    (where / "secret").write_text("tenant")
    with frozen(where):
        lab.delete_claim(claim)
        scene.refused(first, "no answer from the host")
        assert lab.until(lambda: lab.metric("localvolume_host_calls_hung"), bool)
        scene.served()
        scene.refused(first, "still stuck")
    lab.published(scene.fs, "disk", unlike=first["metadata"]["uid"])
    assert not (where / "secret").exists()


def test_a_disk_that_hangs_when_it_is_discovered(scene: Scene) -> None:
    lab = scene.lab
    where = scene.filesystem("disk")
    with frozen(where):
        lab.start()
        scene.served()
    lab.published(scene.fs, "disk")


def test_a_disk_that_ends_before_its_size(scene: Scene) -> None:
    """Reading it fails from some byte on, as of a disk with bad sectors."""
    lab = scene.lab
    device = scene.device("disk")
    lab.start()
    first = lab.published(scene.raw, "disk")
    claim = lab.bound(first)
    _write(device, MIB)
    os.truncate(device.backing, 8 * MIB)
    lab.delete_claim(claim)
    scene.refused(first, "Input/output error")
    scene.served()
    os.truncate(device.backing, 64 * MIB)
    lab.published(scene.raw, "disk", unlike=first["metadata"]["uid"])
    assert _read(device, MIB) == bytes(6)


def test_a_disk_that_cannot_be_read_is_not_offered(scene: Scene) -> None:
    lab = scene.lab
    device = scene.device("disk")
    os.truncate(device.backing, 0)
    lab.start()
    scene.served()
    assert not lab.volumes_at(scene.raw, "disk")
    lab.until(lambda: lab.held(scene.raw), lambda held: held == {"unknown": 1})
    os.truncate(device.backing, 64 * MIB)
    lab.published(scene.raw, "disk")


def test_a_full_filesystem(scene: Scene) -> None:
    lab = scene.lab
    where = scene.filesystem("disk")
    lab.start()
    first = lab.published(scene.fs, "disk")
    claim = lab.bound(first)
    with contextlib.suppress(OSError), open(where / "all", "wb", buffering=0) as file:
        while file.write(bytes(MIB)):
            pass
    with contextlib.suppress(OSError):
        for number in range(100_000):
            (where / str(number)).mkdir()
    lab.delete_claim(claim)
    lab.published(scene.fs, "disk", unlike=first["metadata"]["uid"])
    assert os.listdir(where) == ["lost+found"]


def test_a_filesystem_that_has_become_read_only(scene: Scene) -> None:
    lab = scene.lab
    where = scene.filesystem("disk")
    lab.start()
    first = lab.published(scene.fs, "disk")
    claim = lab.bound(first)
    (where / "secret").write_text("tenant")
    command("mount", "-o", "remount,ro", where)
    lab.delete_claim(claim)
    scene.refused(first, "read-only")
    scene.served()
    assert (where / "secret").read_text() == "tenant"
    command("mount", "-o", "remount,rw", where)
    lab.published(scene.fs, "disk", unlike=first["metadata"]["uid"])
    assert not (where / "secret").exists()


def test_a_device_that_goes_away_while_zeros_are_written(scene: Scene) -> None:
    lab = scene.lab
    device = scene.device("disk")
    path, pulled = device.path, threading.Event()

    def going(fd: int, start: int, length: int) -> None:
        """As a disk that is pulled: nothing is written, and it is not there any more."""
        if pulled.is_set():
            blockdev.zero_out(fd, start, length)
            return
        pulled.set()
        os.unlink(scene.raw.path("disk"))
        raise OSError(6, "No such device or address")

    lab.ask_kernel(zero_out=going)
    lab.start()
    first = lab.published(scene.raw, "disk")
    claim = lab.bound(first)
    _write(device, 63 * MIB)
    lab.delete_claim(claim)
    scene.refused(first, "gone")
    scene.served()
    assert _read(device, 63 * MIB) == b"tenant"
    scene.raw.path("disk").symlink_to(path)
    lab.published(scene.raw, "disk", unlike=first["metadata"]["uid"])
    assert _read(device, 63 * MIB) == bytes(6)


def test_a_device_that_is_detached_between_two_attempts(scene: Scene) -> None:
    """And comes back under the same name, with its tenant's data."""
    lab = scene.lab
    # A number of its own, which no other disk gets meanwhile.
    path = lab.stack.enter_context(spare_loop_name())
    device = lab.stack.enter_context(loop_device(64 * MIB, at=path))
    lab.link(device, scene.raw.path("disk"))
    lab.start()
    first = lab.published(scene.raw, "disk")
    claim = lab.bound(first)
    _write(device, MIB)
    device.detach()
    lab.delete_claim(claim)
    lab.event(first["metadata"]["name"], "VolumeFailedDelete")
    scene.served()
    found = lab.volumes_at(scene.raw, "disk")
    assert [v["metadata"]["uid"] for v in found] == [first["metadata"]["uid"]]
    device.attach(at=path)
    lab.published(scene.raw, "disk", unlike=first["metadata"]["uid"])
    assert _read(device, MIB) == bytes(6)


def _write(device: LoopDevice, place: int) -> None:
    fd = os.open(device.path, os.O_WRONLY)
    try:
        os.pwrite(fd, b"tenant", place)
        os.fsync(fd)
    finally:
        os.close(fd)


def _read(device: LoopDevice, place: int) -> bytes:
    fd = os.open(device.path, os.O_RDONLY)
    try:
        return os.pread(fd, 6, place)
    finally:
        os.close(fd)
