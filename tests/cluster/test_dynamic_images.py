"""Volumes in images through the agent: under links, gone with the claim, back after a boot."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.host.block.blockdev import exclusive_open
from localvolume.host.loop.attach import Loop
from tests.cluster.support_dynamic import DynamicLab, MadePool, Volume
from tests.cluster.support_loops import LINKS, detach_all, loops_of, release
from tests.host.support_devices import bind, command, mounted
from tests.suite.names import POOL
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

XFS = pytest.param("xfs", marks=pytest.mark.needs("xfs"))


_ENDING_SECONDS = 10.0


@contextlib.contextmanager
def _cleared(lab: DynamicLab, pool: MadePool) -> Iterator[None]:
    """Whatever the test comes to, the pool's disk can be unmounted and /run is as before."""
    # Threads of other tests may wait for work for ever.
    others = set(threading.enumerate())
    try:
        yield
    finally:
        lab.stop()
        # What a thread of the agent has begun goes on without it, and may be to attach an image.
        for thread in set(threading.enumerate()) - others:
            thread.join(_ENDING_SECONDS)
        release(pool.directory)


@pytest.fixture
def pool(dynamic: DynamicLab) -> Iterator[MadePool]:
    made = dynamic.pool("vault", backend="image", size=512 * MIB)
    with _cleared(dynamic, made):
        yield made


def _link(volume: Volume, path: Path) -> None:
    """The link is where the PersistentVolume's pool and name say, and leads to a loop device."""
    _, _, pool_id = volume["metadata"]["annotations"][POOL].rpartition("/")
    assert path == LINKS / pool_id / volume["metadata"]["name"]
    assert os.readlink(path).startswith("/dev/loop")


@pytest.mark.parametrize("fs_type", ["", "ext4", XFS])
def test_a_filesystem_of_its_own_with_the_promised_size(
    dynamic: DynamicLab, pool: MadePool, fs_type: str
) -> None:
    """The promise in df, ENOSPC beyond it, and nothing of it after the claim."""
    size = 320 if fs_type == "xfs" else 32
    cls = dynamic.storage_class(parameters={"fsType": fs_type} if fs_type else {})
    dynamic.start()
    claim = dynamic.claim(cls, size=f"{size}Mi")
    volume = dynamic.made(claim)
    path = dynamic.path_of(volume)
    _link(volume, path)
    assert volume["spec"]["local"]["fsType"] == (fs_type or "ext4")
    assert volume["spec"]["volumeMode"] == "Filesystem"
    assert volume["spec"]["capacity"] == {"storage": f"{size}Mi"}
    assert len(loops_of(pool.directory)) == 1
    # As kubelet would.
    with mounted(str(path), fstype=fs_type or "ext4") as where:
        found = os.statvfs(where)
        assert abs(found.f_bavail * found.f_frsize / (size * MIB) - 1) < (
            0.25 if fs_type == "xfs" else 0.02
        )
        with pytest.raises(OSError, match="No space left"), open(where / "full", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, (size + 1) * MIB)
    dynamic.delete(claim)
    dynamic.gone(volume)
    dynamic.until(lambda: _left(pool), lambda left: left == ([], [], [], []))
    assert not os.path.lexists(path)


def _left(pool: MadePool) -> tuple[list[str], list[str], list[str], list[Loop]]:
    images = sorted(os.listdir(pool.directory / ".localvolume" / "images"))
    return images, pool.trash(), pool.records(), loops_of(pool.directory)


def _block(dynamic: DynamicLab, **more: Any) -> Volume:
    cls = dynamic.storage_class()
    dynamic.start()
    return dynamic.made(dynamic.claim(cls, size="16Mi", volumeMode="Block", **more))


def test_a_block_volume_is_the_device_itself(dynamic: DynamicLab, pool: MadePool) -> None:
    volume = _block(dynamic)
    path = dynamic.path_of(volume)
    _link(volume, path)
    assert volume["spec"]["volumeMode"] == "Block"
    assert "fsType" not in volume["spec"]["local"]
    assert int(command("blockdev", "--getsize64", path)) == 16 * MIB
    assert path.read_bytes() == bytes(16 * MIB)
    name = volume["spec"]["claimRef"]["name"]
    dynamic.delete_claim(name)
    dynamic.gone(volume)
    dynamic.until(lambda: _left(pool), lambda left: left == ([], [], [], []))


def test_what_a_pod_still_has_mounted_is_not_detached(dynamic: DynamicLab, pool: MadePool) -> None:
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="16Mi")
    volume = dynamic.made(claim)
    with mounted(str(dynamic.path_of(volume))) as where:
        (where / "rows").write_text("precious")
        dynamic.delete(claim)
        dynamic.event(volume["metadata"]["name"], "VolumeFailedDelete", "in use")
        assert (where / "rows").read_text() == "precious"
    dynamic.gone(volume)
    dynamic.until(lambda: _left(pool), lambda left: left == ([], [], [], []))


def test_a_growth_that_waits_for_a_pod_is_tried_when_mounts_change(
    dynamic: DynamicLab, pool: MadePool
) -> None:
    """The device is in use, and by what cannot be seen: that a pod ends changes some mount."""
    dynamic.hurry_dynamic(first_wait=0.05, longest_wait=3600.0)
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="16Mi")
    volume = dynamic.made(claim)

    def failed() -> float:
        with bind(dynamic.directory):
            return dynamic.metric("localvolume_grow_failed_total", **{"class": cls}) or 0

    def size() -> str:
        with bind(dynamic.directory):
            found = dynamic.read_claim(claim)
        return str(found["status"]["capacity"]["storage"]) if found else ""

    held = exclusive_open(str(dynamic.path_of(volume)), write=False)
    try:
        dynamic.grow(claim, "32Mi")
        dynamic.claim_event(claim, "VolumeResizeFailed", "where the agent cannot see it")
        # By itself, as each wait is twice as long as the one before, that takes hours.
        dynamic.until(failed, lambda count: count >= 20)
    finally:
        os.close(held)
    dynamic.until(size, lambda found: found == "32Mi")


@pytest.mark.parametrize("mode", ["Filesystem", "Block"])
def test_after_a_reboot_the_links_lead_to_their_images_again(
    dynamic: DynamicLab, pool: MadePool, mode: str
) -> None:
    """No loop device is attached and /run is empty; the numbers are dealt anew."""
    cls = dynamic.storage_class()
    dynamic.start()
    volumes = [dynamic.made(dynamic.claim(cls, size="16Mi", volumeMode=mode)) for _ in range(3)]
    paths = [dynamic.path_of(one) for one in volumes]
    for number, path in enumerate(paths):
        if mode == "Block":
            with open(path, "r+b") as device:
                device.write(f"tenant {number}".encode())
        else:
            with mounted(str(path)) as where:
                (where / "rows").write_text(f"tenant {number}")
    dynamic.stop()
    detach_all(pool.directory)
    shutil.rmtree(paths[0].parent)
    spare = dynamic.raw_disk()
    dynamic.start()
    dynamic.until(lambda: all(os.path.lexists(path) for path in paths), bool)
    assert len(loops_of(pool.directory)) == 3
    for number, path in enumerate(paths):
        assert os.readlink(path) != spare.path
        if mode == "Block":
            with open(path, "rb") as device:
                assert device.read(8) == f"tenant {number}".encode()
        else:
            with mounted(str(path)) as where:
                assert (where / "rows").read_text() == f"tenant {number}"
    dynamic.delete_claim(volumes[1]["spec"]["claimRef"]["name"])
    dynamic.gone(volumes[1])
    dynamic.until(lambda: len(loops_of(pool.directory)), lambda count: count == 2)


def test_a_full_pool_gives_the_claim_back_and_keeps_nothing_of_it(
    dynamic: DynamicLab, pool: MadePool
) -> None:
    """Images are preallocated: what is promised is there."""
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="1Gi")
    dynamic.claim_event(claim, "ProvisioningFailed", "of room left, 1Gi asked for")
    dynamic.settle()
    assert _left(pool) == ([], [], [], [])
