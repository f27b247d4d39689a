"""From a mount table that does not hold still nobody concludes that something is not mounted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.dynamic.inline import with_mounts
from localvolume.flexvolume.driver import DriverFailed, Volume
from localvolume.flexvolume.drivers.bindmount import BindDriver
from localvolume.flexvolume.drivers.devicemount import must_be_free
from localvolume.health.facts import Look
from localvolume.health.model import Location, Seen
from localvolume.host.mount.inuse import users_of
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.process.workers import Hung, Workers
from localvolume.static.facts.survey import Survey
from localvolume.static.model import Entry
from tests.host.support_disks import bench
from tests.host.support_mounts import Mounts, restless
from tests.host.support_paces import PATIENT

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def place(tmp_path: Path) -> str:
    return os.path.realpath(tmp_path)


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    with Mounts() as made:
        yield made


async def test_a_prepared_volume_is_not_looked_at(mounts: Mounts, place: str) -> None:
    """It would be withdrawn as one that has vanished."""
    path = mounts.tmpfs(f"{place}/volume")
    workers = Workers()
    try:
        survey = Survey(workers, PATIENT)
        entry = Entry("", "volume", path, path)
        with restless(f"{place}/other"), pytest.raises(Hung, match="keep changing"):
            await survey.read_now(entry, offered=True)
        assert (await survey.read_now(entry, offered=True)).problem is None
    finally:
        workers.close()


def test_nobody_can_tell_whether_a_volume_is_used(place: str) -> None:
    """It would be removed under a pod that has it."""
    volume = f"{place}/volume"
    os.mkdir(volume)
    fd = os.open(volume, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with restless(f"{place}/other"), pytest.raises(BlockingIOError):
            users_of(fd, volume)
        assert users_of(fd, volume) == []
    finally:
        os.close(fd)


def test_nothing_is_mounted_over_what_may_be_there(place: str) -> None:
    target, root = f"{place}/target", f"{place}/root"
    for path in (target, root):
        os.mkdir(path)
    with restless(f"{place}/other"):
        with pytest.raises(DriverFailed, match="keep changing"):
            must_be_free(target, ())
        with pytest.raises(DriverFailed, match="keep changing"):
            BindDriver(root).mount(Volume(name="pvc-1", size_bytes=1, tags={}), target)
    assert read_mount_table().at(target) is None
    assert not must_be_free(target, ())


def test_a_volume_is_not_said_to_be_gone(place: str) -> None:
    with restless(f"{place}/other"):
        seen = Look(read_mount_table()).at(Location(path=place, kind="mount"))
    assert seen == Seen(unknown=f"it is not known what is mounted at {place}")


def test_every_pod_may_have_its_own_volume_mounted(mounts: Mounts, place: str) -> None:
    """It would be removed under its pod."""
    below = "volumes/kubernetes.io~csi/cache/mount"
    os.makedirs(f"{place}/pods/mounted/{below}")
    mounts.tmpfs(f"{place}/pods/mounted/{below}")
    uids = {"mounted", "other"}
    with restless(f"{place}/restless"):
        assert with_mounts(uids) == uids
    assert with_mounts(uids) == {"mounted"}


@pytest.mark.needs("loop", "ext4")
def test_no_disk_is_formatted(place: str) -> None:
    """It may be mounted."""
    with bench(Path(place)) as made, contextlib.ExitStack() as stack:
        disk = made.disk(stack)
        assert made.row(disk).verdict == "format"
        with restless(f"{place}/other"):
            row = made.row(disk)
        assert (row.verdict, row.reason) == ("hold", "the mounts keep changing")
