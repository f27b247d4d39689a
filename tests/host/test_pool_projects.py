"""Several pools on one filesystem: its quota projects are one numbering for all of them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from localvolume.backends.directory.projects import ProjectTaken
from localvolume.backends.model import Record
from localvolume.backends.pool.pool import PoolStore
from localvolume.config.pools import PoolConfig
from tests.host.support_devices import filesystem
from tests.host.support_pools import ON_EXT4, Numbered, offer, purge, store_in, tree, wish

pytestmark = ON_EXT4


@contextmanager
def pools(*names: str) -> Iterator[list[PoolStore]]:
    """Pools in directories of one filesystem, open."""
    with filesystem("ext4") as where, ExitStack() as stack:
        found = []
        for name in names:
            (where / name).mkdir(0o755)
            store = stack.enter_context(store_in(where / name, backend=Numbered(), name=name))
            store.open()
            found.append(store)
        yield found


def projects(*stores: PoolStore) -> list[int]:
    return sorted(one.project for store in stores for one in store.look().records.values())


def test_volumes_that_are_made_at_once_in_two_pools_have_a_project_each() -> None:
    with pools("a", "b") as stores:
        begin = threading.Barrier(8)

        def make(store: PoolStore, name: str) -> None:
            begin.wait(120)
            store.make(wish(name))

        threads = [
            threading.Thread(target=make, args=(store, f"pvc-{number}"))
            for number in range(4)
            for store in stores
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert projects(*stores) == list(range(100_000, 100_008))


def test_a_project_is_free_again_once_its_volume_is_purged() -> None:
    with pools("a", "b") as (one, other):
        gone = one.retire(offer(one, wish("pvc-1")))
        assert other.make(wish("pvc-2")).project == 100_001
        purge(one, gone)
        assert other.make(wish("pvc-3")).project == 100_000


def test_a_pool_that_is_closed_is_seen_no_more_and_found_again() -> None:
    with pools("a", "b") as (one, other):
        one.make(wish("pvc-1"))
        one.close()
        # With a quota, the kernel knows of it; that is tested on one that has them.
        assert other.make(wish("pvc-1")).project == 100_000
        one.open()
        assert other.make(wish("pvc-2")).project == 100_001


def test_pools_of_other_filesystems_have_numbers_of_their_own() -> None:
    with pools("a") as (one,), pools("a") as (other,):
        assert one.make(wish()).project == other.make(wish()).project == 100_000


def test_a_volume_whose_project_somebody_has_taken_is_begun_anew_with_another() -> None:
    class Beaten(Numbered):
        """Another agent is faster, once."""

        def make(self, pool: int, path: str, record: Record) -> Record:
            if record.project == 100_000:
                raise ProjectTaken("something else is in the quota project 100000")
            return super().make(pool, path, record)

        def free_project(self, pool: int, record: Record, taken: Collection[int]) -> int:
            return super().free_project(pool, record, {*taken, *beaten})

    beaten: set[int] = set()
    with filesystem("ext4") as where, store_in(where, backend=Beaten()) as store:
        with pytest.raises(ProjectTaken):
            store.make(wish())
        assert store.look().records == {}
        assert tree(where) == {}
        # Once the other is in it, the kernel says so.
        beaten.add(100_000)
        assert store.make(wish()).project == 100_001


def test_what_a_crash_left_half_made_in_a_project_of_anothers_gets_another(tmp_path: Path) -> None:
    """The record was written, and the agent killed; another agent's pool took the project."""

    class Refused(Numbered):
        def make(self, pool: int, path: str, record: Record) -> Record:
            if record.project == 100_000:
                raise ProjectTaken("something else is in the quota project 100000")
            return super().make(pool, path, record)

    class Killed(Numbered):
        def make(self, pool: int, path: str, record: Record) -> Record:
            raise KeyboardInterrupt

    config = PoolConfig(
        name="p",
        host_dir=str(tmp_path),
        mount_dir=str(tmp_path),
        provisioner="dynamic.localvolume.dev",
        must_be_mounted=False,
    )
    tmp_path.chmod(0o755)
    first = PoolStore(config, Killed())
    with pytest.raises(KeyboardInterrupt):
        first.make(wish())
    first.close()
    second = PoolStore(config, Refused())
    try:
        assert second.look().records["pvc-1"].state == "making"
        with pytest.raises(ProjectTaken):
            second.make(wish())
        assert second.look().records == {}
    finally:
        second.close()
