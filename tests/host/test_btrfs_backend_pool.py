"""Btrfs volumes through the pool store: a whole life, and a crash between any two steps of it."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.backends.btrfs.backend import BtrfsBackend
from localvolume.backends.model import NotThisVolume, Record
from localvolume.backends.pool.pool import PoolStore
from localvolume.config.pools import PoolConfig
from localvolume.host.btrfs import quota, subvolumes
from tests.host.support_btrfs import PATIENT, SIZE, fill, identity_of
from tests.host.support_devices import command, filesystem, flush
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "btrfs")


@pytest.fixture
def root() -> Iterator[Path]:
    with filesystem("btrfs", size=1024 * MIB) as where:
        yield where


def opened(root: Path) -> PoolStore:
    config = PoolConfig(
        name="fast",
        host_dir=str(root),
        mount_dir=str(root),
        provisioner="dynamic.localvolume.dev",
        backend="btrfs",
    )
    return PoolStore(config, BtrfsBackend(counting=PATIENT))


def asked(name: str) -> Record:
    return Record(
        name=name,
        backend="btrfs",
        state="making",
        directory=f"ns/{name}",
        size_bytes=SIZE,
        claim=f"ns/{name}",
        claim_uid="uid",
    )


def has_groups(root: Path, wanted: set[int]) -> None:
    """Once the kernel is through: a purge waits for it, but not for long."""
    fd = os.open(root, os.O_RDONLY)

    def found() -> set[int]:
        subvolumes.commit(fd)
        return set(quota.read_quotas(fd).groups) - {5}

    try:
        until(found, lambda groups: groups == wanted, seconds=120)
    finally:
        os.close(fd)


def test_a_whole_life(root: Path) -> None:
    pool = opened(root)
    try:
        record = pool.make(asked("a"))
        assert (record.state, record.inode) == ("made", identity_of(root / "ns/a"))
        record = pool.offered(record, "volume-uid")
        assert fill(root / "ns/a/file", 2 * SIZE)[1] == errno.EDQUOT
        record = pool.grow(record, 2 * SIZE)
        assert fill(root / "ns/a/file", SIZE // 2)[1] == 0
        assert pool.attach_all() == {}
        flush(root)
        report = pool.look()
        assert (report.problem, report.abilities.enforce, list(report.orphans)) == ("", True, [])
        assert report.usage["a"].used_bytes == pytest.approx(1.5 * SIZE, rel=0.01)
        gone = pool.retire(record)
        assert not (root / "ns").exists()
        assert (root / ".localvolume/trash" / gone.trash / "file").exists()
        pool.purge(gone, stop=threading.Event())
        assert pool.look().records == {}
        has_groups(root, set())
    finally:
        pool.close()


def test_taken_away_unless_written_to(root: Path) -> None:
    pool = opened(root)
    try:
        empty, written = pool.make(asked("a")), pool.offered(pool.make(asked("b")))
        (root / "ns/b/file").touch()
        pool.take_away(empty)
        with pytest.raises(NotThisVolume, match="may hold data"):
            pool.take_away(written)
        assert os.listdir(root / "ns") == ["b"]
        has_groups(root, {written.inode})
    finally:
        pool.close()


def test_made_again_by_the_next_agent(root: Path) -> None:
    pool = opened(root)
    record = pool.make(asked("a"))
    pool.close()
    # As if it had died before it wrote down that all was done.
    path = root / ".localvolume/records/a.json"
    path.write_text(path.read_text().replace('"made"', '"making"'))
    pool = opened(root)
    try:
        assert pool.make(asked("a")) == record
        assert fill(root / "ns/a/file", 2 * SIZE)[1] == errno.EDQUOT
    finally:
        pool.close()


def test_another_subvolume_in_its_place_is_not_taken_for_it(root: Path) -> None:
    """All have the inode number 256."""
    pool = opened(root)
    try:
        record = pool.offered(pool.make(asked("a")))
        os.rename(root / "ns/a", root / "ns/moved")
        command("btrfs", "subvolume", "create", root / "ns/a")
        with pytest.raises(NotThisVolume):
            pool.retire(record)
        assert "a" in pool.attach_all()
        assert pool.look().records == {"a": record}
        assert sorted(os.listdir(root / "ns")) == ["a", "moved"]
    finally:
        pool.close()
