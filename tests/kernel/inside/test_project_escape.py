"""A tenant who owns the files of a volume charges them to other quota projects than its own."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from localvolume.backends.directory.backend import DirectoryBackend
from localvolume.backends.directory.projects import FIRST_PROJECT
from localvolume.backends.model import Record
from localvolume.backends.pool.pool import PoolStore
from localvolume.config.pools import PoolConfig
from localvolume.host.filesystem import projectquota
from tests.host.support_devices import command, mounted
from tests.kernel.inside.support_quota import DISKS, TENANT, charge, fill, formatted
from tests.suite.units import MIB

SIZE = 10 * MIB


@pytest.fixture(scope="module", params=["xfs", "ext4"])
def filesystem(request: pytest.FixtureRequest) -> Iterator[Path]:
    kind = str(request.param)
    with formatted(kind, DISKS[kind]) as path:
        yield path


@pytest.fixture
def where(filesystem: Path) -> Iterator[Path]:
    path = filesystem / "pool"
    path.mkdir(0o755)
    yield path
    shutil.rmtree(path)


def store(where: Path) -> PoolStore:
    config = PoolConfig(
        name="p", host_dir=str(where), mount_dir=str(where), provisioner="dynamic.localvolume.dev"
    )
    return PoolStore(config, DirectoryBackend())


@pytest.fixture
def pool(where: Path) -> Iterator[PoolStore]:
    with closing(store(where)) as made:
        yield made


def wish(name: str) -> Record:
    return Record(
        name=name,
        backend="directory",
        state="making",
        directory=name,
        size_bytes=SIZE,
        uid=TENANT,
        gid=TENANT,
    )


@pytest.fixture
def volume(pool: PoolStore, where: Path) -> Iterator[int]:
    """A tenant's volume, open."""
    pool.make(wish("pvc-1"))
    fd = os.open(where / "pvc-1", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    yield fd
    os.close(fd)


def problem(pool: PoolStore, name: str = "pvc-1") -> str:
    report = pool.look()
    assert not report.problem
    return report.usage[name].problem


def test_a_volume_moved_to_no_project_is_noticed(pool: PoolStore, volume: int) -> None:
    own = projectquota.membership(volume).project
    assert not problem(pool)
    charge(volume, 0)
    # This is what it is for: nothing stops the tenant at the volume's size.
    with pytest.raises(AssertionError, match="nothing stopped"):
        fill(volume, most=2 * SIZE)
    assert f"in quota project 0, not in {own}" in problem(pool)
    # It is only said: with files in it that are not counted, nothing is counted by force.
    assert projectquota.membership(volume).project == 0
    charge(volume, own)
    assert not problem(pool)


def test_a_volume_moved_to_a_neighbours_project_is_noticed(pool: PoolStore, volume: int) -> None:
    other = pool.make(wish("pvc-2"))
    charge(volume, other.project)
    assert f"in quota project {other.project}" in problem(pool)
    assert not problem(pool, "pvc-2")


def test_a_volume_that_passes_its_project_on_no_longer_is_noticed(
    pool: PoolStore, volume: int
) -> None:
    charge(volume, projectquota.membership(volume).project, inherit=False)
    assert "no longer passes on" in problem(pool)


def test_a_volume_that_is_not_there_any_more_escaped_no_limit(pool: PoolStore, volume: int) -> None:
    charge(volume, 0)
    pool.retire(pool.offered(pool.look().records["pvc-1"]))
    assert not problem(pool)


def test_a_volume_that_cannot_be_opened_is_told_and_hides_no_other() -> None:
    """Its directory is damaged: nobody can tell whether what is written there is counted."""
    disk = DISKS["spare"]
    with formatted("ext4", disk) as path:
        (path / "pool").mkdir()
        with closing(store(path / "pool")) as pool:
            damaged = pool.make(wish("pvc-1"))
            pool.make(wish("pvc-2"))
            assert not problem(pool)
    # A name that leads to an inode without links: the kernel opens no such thing.
    request = f"set_inode_field <{damaged.inode}> links_count 0"
    command("debugfs", "-w", "-R", request, disk)
    with (
        mounted(disk, options="prjquota", fstype="ext4") as path,
        closing(store(path / "pool")) as pool,
    ):
        assert "it is not known whether its limit holds" in problem(pool)
        assert not problem(pool, "pvc-2")


def test_a_tenant_cannot_use_up_the_projects_of_volumes_to_come(
    pool: PoolStore, where: Path, volume: int
) -> None:
    # Whoever counts from the lowest on comes to these; the last are said to be in use, not made so.
    predicted = range(FIRST_PROJECT, FIRST_PROJECT + 100)
    for project in predicted:
        name = f"of-{project}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=volume)
        try:
            os.fchown(fd, TENANT, TENANT)
            charge(fd, project, inherit=False)
        finally:
            os.close(fd)
    said = range(predicted.stop, FIRST_PROJECT + 100_000)
    directory = os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = {DirectoryBackend().free_project(directory, wish("pvc-2"), said) for _ in range(3)}
    finally:
        os.close(directory)
    assert len(found) == 3
    assert not found & {*predicted, *said}
    # And a volume is made: its files are counted, and it is alone in its project.
    made = pool.make(wish("pvc-3"))
    assert made.project not in predicted
    assert not problem(pool, "pvc-3")
