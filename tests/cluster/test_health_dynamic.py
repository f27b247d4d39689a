"""Volumes made for claims: what fails in their pool, and in the image that one of them is."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.support_csi import CsiLab
from tests.cluster.support_dynamic import DynamicLab, MadePool
from tests.cluster.support_health import QUICK, events, looked, says, times, told, written
from tests.cluster.support_loops import loops_of
from tests.cluster.test_dynamic_images import _cleared as cleared
from tests.host.support_devices import LoopDevice, command, tmpfs, unmount
from tests.host.support_failing import count_an_error, mounted_elsewhere, repair, starve
from tests.suite.names import CSI
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


@contextlib.contextmanager
def pool_on(lab: DynamicLab, device: LoopDevice, backend: str = "directory") -> Iterator[MadePool]:
    made = lab.pool(mounted=False, backend=backend)
    command("mount", device.path, made.directory)
    try:
        yield made
    finally:
        lab.stop()
        unmount(made.directory)


def test_a_pool_that_counts_errors(dynamic: DynamicLab) -> None:
    disk = dynamic.disk()
    with pool_on(dynamic, disk) as pool:
        cls = dynamic.storage_class()
        dynamic.start(patience=QUICK)
        claim = dynamic.claim(cls)
        volume = dynamic.made(claim)
        name, claim_name = volume["metadata"]["name"], claim["metadata"]["name"]
        path = dynamic.path_of(volume)
        (path / "precious").write_text("data")
        count_an_error(disk)
        text = says(dynamic, name, "IOErrors: its ext4 on")
        assert dynamic.event(name, "VolumeUnhealthy")["message"] == text
        assert text in dynamic.event(claim_name, "VolumeUnhealthy")["message"]
        # They are counted anew, one after the other, at each look.
        dynamic.until(
            lambda: [one["persistentvolume"] for one in told(dynamic)],
            lambda found: found == [name],
        )
        # Nothing new goes there; what was there stays.
        late = dynamic.claim(cls)
        dynamic.event(late["metadata"]["name"], "ProvisioningFailed", "counts errors")
        assert dynamic.volume_of(late) is None
        assert (path / "precious").read_text() == "data"

        dynamic.stop()
        command("umount", pool.directory)
        dynamic.start(patience=QUICK)
        says(dynamic, name, "DeviceGone: ")
        for about in (name, claim_name):
            dynamic.event(about, "VolumeUnhealthy", "DeviceGone")
        dynamic.stop()
        repair(disk)
        command("mount", disk.path, pool.directory)
        dynamic.start(patience=QUICK)
        says(dynamic, name, "")
        for about in (name, claim_name):
            dynamic.event(about, "VolumeHealthy")
            assert times(dynamic, about) == 2, "the errors, and that it was gone"
        assert (path / "precious").read_text() == "data"
        assert told(dynamic) == []


def test_an_api_server_without_health_in_the_status_of_claims(csi: CsiLab) -> None:
    """It is said by Events and on the PersistentVolume, and nothing is wrong with that."""
    disk = csi.disk()
    with pool_on(csi, disk):
        cls = csi.storage_class(provisioner=CSI)
        csi.start(patience=QUICK, csi=True, kubelet_directory=str(csi.kubelet))
        claim = csi.claim(cls)
        volume = csi.made(claim)
        count_an_error(disk)
        says(csi, volume["metadata"]["name"], "IOErrors: its ext4 on")
        csi.claim_event(claim, "VolumeUnhealthy", "IOErrors")
        found = csi.read_claim(claim)
        assert found is not None
        assert "healthStatus" not in found["status"]
        assert not csi.logged("not reported on its claim")


@pytest.mark.needs("btrfs")
def test_a_btrfs_pool_that_cannot_write(dynamic: DynamicLab) -> None:
    disk = dynamic.disk("btrfs")
    with pool_on(dynamic, disk, "btrfs") as pool:
        cls = dynamic.storage_class()
        dynamic.start(patience=QUICK)
        volume = dynamic.made(dynamic.claim(cls))
        starve(pool.directory, disk)
        says(dynamic, volume["metadata"]["name"], "ReadOnly: its btrfs takes no writes any more")
        assert dynamic.path_of(volume).is_dir()
        assert dynamic.volume(volume["metadata"]["name"])


def test_sparse_images_whose_pool_is_full(dynamic: DynamicLab) -> None:
    pool = dynamic.pool(mounted=False, backend="image", image="sparse")
    thick = dynamic.pool("thick", mounted=False, backend="image")
    with (
        tmpfs(pool.directory, size=64 * MIB, options="mode=0755"),
        tmpfs(thick.directory, size=64 * MIB, options="mode=0755"),
        cleared(dynamic, pool),
        cleared(dynamic, thick),
    ):
        cls = dynamic.storage_class(parameters={"pool": "fast"})
        own = dynamic.storage_class("thick", parameters={"pool": "thick"})
        dynamic.start(patience=QUICK)
        claims = [dynamic.claim(name, size="16Mi", volumeMode="Block") for name in (cls, own)]
        volume, kept = (dynamic.made(claim) for claim in claims)
        for claim in claims:
            # Said when the last of its making is written: no room is taken or freed any more.
            dynamic.claim_event(claim, "ProvisioningSucceeded")
        name = volume["metadata"]["name"]
        ballast = [one.directory / "ballast" for one in (pool, thick)]
        for file in ballast:
            with file.open("wb") as fd:
                room = os.statvfs(file.parent)
                os.posix_fallocate(fd.fileno(), 0, room.f_bavail * room.f_frsize)
        says(dynamic, name, "PoolFull: its pool fast has no room left")
        dynamic.event(name, "VolumeUnhealthy", "PoolFull")
        # What was allocated in full does not need any.
        looked(dynamic)
        assert written(dynamic, kept["metadata"]["name"]) == ""
        ballast[0].unlink()
        says(dynamic, name, "")
        dynamic.event(name, "VolumeHealthy")


def test_an_image_whose_own_filesystem_fails_in_a_pod(dynamic: DynamicLab, tmp_path: Path) -> None:
    """Kubelet mounts it where the agent does not look; the pool is well, and so is the other."""
    pool = dynamic.pool(backend="image", size=256 * MIB)
    with cleared(dynamic, pool):
        cls = dynamic.storage_class()
        dynamic.start(patience=QUICK)
        one, other = (dynamic.made(dynamic.claim(cls, size="32Mi")) for _ in range(2))
        name = one["metadata"]["name"]
        (node,) = (
            loop.node
            for loop in loops_of(pool.directory)
            if os.path.samefile(loop.node, os.path.realpath(dynamic.path_of(one)))
        )
        where = tmp_path / "pod"
        where.mkdir()
        with mounted_elsewhere(node, where):
            count_an_error(node)
            says(dynamic, name, f"IOErrors: its ext4 on {os.path.basename(node)}")
            dynamic.event(name, "VolumeUnhealthy")
            looked(dynamic)
            assert written(dynamic, other["metadata"]["name"]) == ""
        assert len(events(dynamic, name)) == 1
    shutil.rmtree(where)
