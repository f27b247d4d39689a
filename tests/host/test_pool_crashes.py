"""Killed before any change it makes to the disk, a pool loses nothing, leaks nothing, doubles
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from localvolume.backends.pool.pool import PoolStore
from tests.host.support_devices import filesystem
from tests.host.support_killed import killed
from tests.host.support_pools import (
    ON_EXT4,
    offer,
    purge,
    store_in,
    tree,
    wish,
)

pytestmark = ON_EXT4

ASKED = wish(directory="ns/claim", mode=0o750, uid=7, gid=8)


def in_pool(where: Path, deed: Callable[[PoolStore], object]) -> Callable[[], None]:
    def done() -> None:
        with store_in(where) as store:
            deed(store)

    return done


def each_kill(
    where: Path,
    before: Callable[[PoolStore], object],
    deed: Callable[[PoolStore], object],
    after: Callable[[PoolStore, int], None],
) -> int:
    """Kill `deed` at each of its changes; `after` sees what a new agent finds. How often."""
    for changes in range(500):
        with store_in(where) as store:
            before(store)
        was_killed = killed(changes, in_pool(where, deed))
        with store_in(where) as store:
            report = store.look()
            assert (report.problem, dict(report.unreadable)) == ("", {})
            # What is not adopted yet, or forgotten, is one rightly.
            assert set(report.orphans) <= {"old"}, changes
            after(store, changes)
            _end(store)
            assert tree(where) == {}, changes
            assert store.look().orphans == []
        if not was_killed:
            return changes
    raise AssertionError("it never ends")


def _end(store: PoolStore) -> None:
    """What a later plan does with whatever is left, once nobody wants the volume any more."""
    for record in store.look().records.values():
        if record.state == "offered":
            record = store.retire(record)
        if record.state == "removed":
            purge(store, record)
        else:
            store.take_away(record)
    assert store.look().records == {}


def nothing(_: PoolStore) -> None:
    """Begin with an empty pool."""


@pytest.mark.parametrize("wanted_still", [True, False])
def test_making(wanted_still: bool) -> None:
    def after(store: PoolStore, changes: int) -> None:
        if wanted_still:
            made = store.make(ASKED)
            found = (where / "ns/claim").stat()
            assert (made.state, made.inode) == ("made", found.st_ino), changes
            assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (0o750, 7, 8)
            assert os.listdir(where / ".localvolume/making") == []

    with filesystem("ext4") as where:
        assert each_kill(where, nothing, lambda store: store.make(ASKED), after) > 10


def test_making_otherwise_than_before() -> None:
    """The class was corrected between two attempts."""

    def after(store: PoolStore, changes: int) -> None:
        made = store.make(wish(directory="other/claim"))
        if made.directory == "other/claim":
            assert not (where / "ns").exists(), changes

    with filesystem("ext4") as where:
        each_kill(where, nothing, lambda store: store.make(ASKED), after)


def test_offering_and_growing() -> None:
    def deed(store: PoolStore) -> None:
        store.grow(store.offered(store.make(ASKED), "uid"), 9 << 20)

    def after(store: PoolStore, changes: int) -> None:
        record = store.look().records["pvc-1"]
        assert record.size_bytes in (1 << 20, 9 << 20)
        assert store.grow(store.offered(record, "uid"), 9 << 20).size_bytes == 9 << 20

    with filesystem("ext4") as where:
        each_kill(where, lambda store: store.make(ASKED), deed, after)


def with_data(store: PoolStore) -> None:
    record = offer(store, ASKED)
    (Path(store.config.mount_dir) / "ns/claim/data").write_text("a tenant's")
    assert record.state == "offered"


def test_removing() -> None:
    def deed(store: PoolStore) -> None:
        store.retire(store.look().records["pvc-1"])

    def after(store: PoolStore, changes: int) -> None:
        gone = store.retire(store.look().records["pvc-1"])
        assert not (where / "ns").exists()
        assert (where / ".localvolume/trash" / gone.trash / "data").read_text() == "a tenant's"

    with filesystem("ext4") as where:
        each_kill(where, with_data, deed, after)


def test_purging() -> None:
    def before(store: PoolStore) -> None:
        with_data(store)
        (Path(store.config.mount_dir) / "ns/claim/a/b").mkdir(parents=True)
        store.retire(store.look().records["pvc-1"])

    def deed(store: PoolStore) -> None:
        purge(store, store.look().records["pvc-1"])

    def after(store: PoolStore, changes: int) -> None:
        for record in store.look().records.values():
            purge(store, record)
        assert store.look().records == {}

    with filesystem("ext4") as where:
        each_kill(where, before, deed, after)


@pytest.mark.parametrize("state", ["made", "offered"])
def test_taking_away(state: str) -> None:
    def before(store: PoolStore) -> None:
        record = store.make(ASKED)
        if state == "offered":
            store.offered(record)

    def deed(store: PoolStore) -> None:
        store.take_away(store.look().records["pvc-1"])

    def after(store: PoolStore, changes: int) -> None:
        if changes % 2:
            # Wanted after all.
            assert store.make(ASKED).state in ("made", "offered")
            assert (where / "ns/claim").is_dir()

    with filesystem("ext4") as where:
        each_kill(where, before, deed, after)


def test_adopting_and_forgetting() -> None:
    def before(store: PoolStore) -> None:
        (Path(store.config.mount_dir) / "old").mkdir()

    def deed(store: PoolStore) -> None:
        store.forget(store.adopt("pvc-old", "old", size_bytes=5))

    def after(store: PoolStore, changes: int) -> None:
        record = store.adopt("pvc-old", "old", size_bytes=5)
        assert (record.adopted, record.state, record.size_bytes) == (True, "offered", 5)
        purge(store, store.retire(record))

    with filesystem("ext4") as where:
        each_kill(where, before, deed, after)


def test_the_pool_itself() -> None:
    """Killed while it is made for the first time."""
    for changes in range(100):
        with filesystem("ext4") as where:
            was_killed = killed(changes, in_pool(where, lambda store: store.open()))
            with store_in(where) as store:
                pool_id = store.open()
                assert offer(store, ASKED).state == "offered"
            with store_in(where, known_ids=(pool_id,)) as again:
                assert again.look().problem == ""
                assert set(os.listdir(where / ".localvolume")) == {
                    "pool.json",
                    "records",
                    "spare",
                    "making",
                    "images",
                    "trash",
                }
        if not was_killed:
            break
    assert changes > 3


def test_what_the_disk_has_after_each_kill_is_readable_by_an_agent_that_comes_later() -> None:
    """No temporary file stays among the records."""
    with filesystem("ext4") as where:
        with store_in(where) as store:
            store.open()
        left = 0
        for changes in range(20):
            killed(changes, in_pool(where, lambda store: store.make(ASKED)))
            names = os.listdir(where / ".localvolume/records")
            left += any(not name.endswith(".json") for name in names)
        assert left
        with store_in(where) as store:
            store.open()
            names = os.listdir(where / ".localvolume/records")
            assert [name for name in names if not name.endswith(".json")] == []
