"""Volumes in directories whose size a project quota enforces, on a kernel that has them."""

import contextlib
import itertools
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localvolume.backends.directory.backend import DirectoryBackend
from localvolume.backends.directory.projects import FIRST_PROJECT, ProjectTaken
from localvolume.backends.model import BackendFailed, Impossible, Record, Usage
from localvolume.backends.pool.pool import PoolStore
from localvolume.config.pools import PoolConfig
from localvolume.host.filesystem import projectquota
from tests.host.support_devices import command, mounted
from tests.kernel.inside.support_quota import DISKS, EXACT, fill, formatted
from tests.suite.units import MIB

SIZE = 20 * MIB


@contextlib.contextmanager
def pool_at(where: Path) -> Iterator[PoolStore]:
    """A pool in a directory, as the agent has it."""
    config = PoolConfig(
        name="p", host_dir=str(where), mount_dir=str(where), provisioner="dynamic.localvolume.dev"
    )
    store = PoolStore(config, DirectoryBackend())
    try:
        yield store
    finally:
        store.close()


@pytest.fixture(scope="module", params=["xfs", "ext4"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def filesystem(kind: str) -> Iterator[Path]:
    with formatted(kind, DISKS[kind]) as path:
        yield path


@pytest.fixture
def where(filesystem: Path) -> Iterator[Path]:
    path = filesystem / "pool"
    path.mkdir(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def pool(where: Path) -> Iterator[PoolStore]:
    with pool_at(where) as store:
        yield store


def record(name: str = "pvc-1", size: int = SIZE, **fields: object) -> Record:
    known = {"backend": "directory", "state": "making", "directory": name, "size_bytes": size}
    return Record(name=name, **{**known, **fields})  # type: ignore[arg-type]


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def filled(path: Path, *, tenant: bool = True) -> int:
    """Write to a volume until the kernel refuses: the bytes."""
    with opened(path) as fd:
        return fill(fd, tenant=tenant)


def usage(pool: PoolStore, name: str = "pvc-1") -> Usage:
    report = pool.look()
    assert not report.problem
    return report.usage[name]


def size_shown(path: Path) -> int:
    shown = os.statvfs(path)
    return shown.f_blocks * shown.f_frsize


def exactly(size: int) -> object:
    return pytest.approx(size, rel=EXACT)


def test_a_tenant_can_write_what_was_promised_and_no_more(pool: PoolStore, where: Path) -> None:
    abilities = pool.look().abilities
    assert (abilities.enforce, abilities.why_not) == (True, "")
    made = pool.make(record(size=50 * MIB))
    assert made.state == "made"
    assert size_shown(where / "pvc-1") == 50 * MIB
    assert filled(where / "pvc-1") == exactly(50 * MIB)
    found = usage(pool)
    assert found.used_bytes == exactly(50 * MIB)
    assert found.available_bytes is not None
    assert found.available_bytes <= EXACT * 50 * MIB
    # The volume's directory and one file.
    assert found.used_inodes == 2


@pytest.mark.parametrize("kind", ["xfs"], indirect=True, scope="module")
def test_xfs_stops_root_as_well(pool: PoolStore, where: Path) -> None:
    pool.make(record())
    assert filled(where / "pvc-1", tenant=False) == exactly(SIZE)


def test_a_volume_that_grows_has_room_for_more_at_once(pool: PoolStore, where: Path) -> None:
    made = pool.offered(pool.make(record()))
    first = filled(where / "pvc-1")
    grown = pool.grow(made, 32 * MIB)
    assert grown.size_bytes == 32 * MIB
    assert size_shown(where / "pvc-1") == 32 * MIB
    assert first + filled(where / "pvc-1") == exactly(32 * MIB)


def test_volumes_beside_each_other_are_limited_each(pool: PoolStore, where: Path) -> None:
    one = pool.make(record("pvc-1"))
    other = pool.make(record("pvc-2", size=10 * MIB))
    assert one.project != other.project
    assert filled(where / "pvc-1") == exactly(SIZE)
    assert usage(pool, "pvc-2").used_bytes in {0, 4096}
    assert filled(where / "pvc-2") == exactly(10 * MIB)


def test_a_purged_volume_leaves_nothing_to_the_next_one_of_its_project(
    pool: PoolStore, where: Path
) -> None:
    made = pool.offered(pool.make(record()))
    filled(where / "pvc-1")
    gone = pool.retire(made)
    assert not (where / "pvc-1").exists()
    # Until it is purged, it counts.
    assert usage(pool).used_bytes == exactly(SIZE)
    pool.purge(gone, stop=threading.Event())
    with opened(where) as fd:
        assert projectquota.read(fd, made.project).hard_bytes == 0
    assert pool.look().records == {}
    pool.make(record("pvc-2", size=24 * MIB))
    assert filled(where / "pvc-2") == exactly(24 * MIB)


def test_limits_that_were_lost_come_back_at_the_start(pool: PoolStore, where: Path) -> None:
    made = pool.make(record())
    with opened(where) as fd:
        projectquota.set_limits(fd, made.project, soft_bytes=None, hard_bytes=None)
    assert pool.attach_all() == {}
    assert filled(where / "pvc-1") == exactly(SIZE)


def test_the_project_of_an_orphan_is_not_given_to_another(pool: PoolStore, where: Path) -> None:
    orphan = pool.make(record())
    pool.forget(orphan)
    made = pool.make(record("pvc-2"))
    assert made.project != orphan.project
    assert filled(where / "pvc-1") == exactly(SIZE)
    assert filled(where / "pvc-2") == exactly(SIZE)


def test_a_volume_taken_away_gives_its_project_back(pool: PoolStore, where: Path) -> None:
    made = pool.make(record())
    pool.take_away(made)
    with opened(where) as fd:
        assert projectquota.read(fd, made.project).hard_bytes == 0
    assert not (where / "pvc-1").exists()


@pytest.mark.parametrize(
    ("soft", "hard", "stops_at"),
    [(None, 12 * MIB, 12 * MIB), (8 * MIB, 12 * MIB, 12 * MIB), (10 * MIB, 10 * MIB, 10 * MIB)],
)
def test_limits_apart_from_the_size_are_those_enforced(
    pool: PoolStore, where: Path, soft: int | None, hard: int, stops_at: int
) -> None:
    """O40, O42: OpenEBS's quotas, whose limits are the request and a share of it."""
    pool.make(record(size=10 * MIB, soft_bytes=soft, hard_bytes=hard))
    assert filled(where / "pvc-1") == exactly(stops_at)


def _minix(disk: str) -> None:
    command("mkfs.minix", "-3", disk)


def _ext4(disk: str) -> None:
    command("mkfs.ext4", "-q", "-F", "-E", "nodiscard", disk)


def _xfs(disk: str) -> None:
    command("mkfs.xfs", "-q", "-f", "-K", disk)


@pytest.mark.parametrize(
    ("fstype", "format_it", "reason"),
    [
        ("minix", _minix, "only xfs and ext4 have project quotas"),
        ("ext4", _ext4, "project quotas are off"),
        ("xfs", _xfs, "project quotas are off"),
    ],
)
def test_where_nothing_can_be_enforced_nothing_is_made(
    fstype: str, format_it: Callable[[str], None], reason: str
) -> None:
    """O39, O41: a class with quotas over a filesystem that has none."""
    format_it(DISKS["spare"])
    with mounted(DISKS["spare"], fstype=fstype) as where, pool_at(where) as pool:
        pool.open()
        before = sorted(where.rglob("*"))
        with pytest.raises(Impossible, match=reason):
            pool.make(record())
        assert sorted(where.rglob("*")) == before
        report = pool.look()
        assert not report.records
        assert not report.abilities.enforce
        assert reason in report.abilities.why_not
        # What is not asked for is not refused.
        pool.make(record("pvc-2", enforced=False))
        assert (where / "pvc-2").is_dir()


def test_a_pool_inside_a_project_of_somebody_elses_is_refused(where: Path) -> None:
    """What is made for it could not be moved there: the kernel says EXDEV, which tells nobody."""
    (where / "inner").mkdir()
    with opened(where / "inner") as fd:
        projectquota.assign(fd, 42)
    with pool_at(where / "inner") as pool:
        with pytest.raises(BackendFailed, match="project 42"):
            pool.make(record())
        assert "project 42" in pool.look().abilities.why_not


@pytest.fixture
def two(where: Path) -> Iterator[tuple[PoolStore, PoolStore]]:
    """Two pools on one filesystem, as several base paths of OpenEBS often are."""
    for name in ("a", "b"):
        (where / name).mkdir(0o755)
    with pool_at(where / "a") as one, pool_at(where / "b") as other:
        yield one, other


def test_two_pools_of_one_filesystem_limit_their_volumes_each(
    two: tuple[PoolStore, PoolStore], where: Path
) -> None:
    one, other = two
    # Nothing is in the kernel's books until the directories are in their projects.
    barrier, made = threading.Barrier(2), {}

    def make(pool: PoolStore, size: int) -> None:
        barrier.wait(60)
        made[size] = pool.make(record(size=size))

    threads = [
        threading.Thread(target=make, args=(pool, size))
        for pool, size in ((one, SIZE), (other, 10 * MIB))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made[SIZE].project != made[10 * MIB].project
    assert filled(where / "a/pvc-1") == exactly(SIZE)
    assert filled(where / "b/pvc-1") == exactly(10 * MIB)
    # One goes, and the other's limit stays.
    gone = one.retire(one.offered(made[SIZE]))
    one.purge(gone, stop=threading.Event())
    assert filled(where / "b/pvc-1") <= EXACT * 10 * MIB


def test_a_limit_is_not_lifted_where_the_project_is_anothers_by_now(
    two: tuple[PoolStore, PoolStore], where: Path
) -> None:
    """The one was killed after its volume was deleted, and before that was written down."""
    one, other = two
    gone = one.retire(one.offered(one.make(record())))
    one.close()
    shutil.rmtree(where / "a/.localvolume/trash" / gone.trash)
    other.close()
    wanted = gone.project - FIRST_PROJECT
    drawn = (number for spare in itertools.count() for number in (wanted, spare))
    second = PoolStore(other.config, DirectoryBackend(draw=lambda _: next(drawn)))
    try:
        taken = second.make(record(size=10 * MIB))
        for _ in range(50):
            if taken.project == gone.project:
                break
            # xfs forgets the directory in the background.
            second.take_away(taken)
            taken = second.make(record(size=10 * MIB))
        assert taken.project == gone.project
        one.purge(gone, stop=threading.Event())
        assert one.look().records == {}
        assert filled(where / "b/pvc-1") == exactly(10 * MIB)
    finally:
        second.close()


def test_of_two_who_took_one_project_unseen_the_second_gets_another(
    two: tuple[PoolStore, PoolStore], where: Path
) -> None:
    """Two agents: each has one of the pools, and sees nothing of the other's."""
    one, other = two

    class Unseeing(DirectoryBackend):
        def free_project(self, pool: int, record: Record, taken: object) -> int:
            return first.project if not tried else super().free_project(pool, record, ())

    first, tried = one.make(record()), []
    with opened(where / "b"):
        other.close()
        late = PoolStore(other.config, Unseeing())
        try:
            with pytest.raises(ProjectTaken, match=str(first.project)):
                late.make(record(size=10 * MIB))
            assert late.look().records == {}
            tried.append(True)
            second = late.make(record(size=10 * MIB))
            assert second.project != first.project
            assert filled(where / "a/pvc-1") == exactly(SIZE)
            assert filled(where / "b/pvc-1") == exactly(10 * MIB)
        finally:
            late.close()
