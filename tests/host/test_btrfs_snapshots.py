"""Snapshots and copies of btrfs volumes: cut at one moment, counted, independent of each other."""

import array
import dataclasses
import errno
import fcntl
import os
import random
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.btrfs.backend import BtrfsBackend
from localvolume.backends.capacity import capacity
from localvolume.backends.model import BackendFailed, Impossible, NoSpace, NotThisVolume, Record
from localvolume.backends.pool.pool import PoolStore
from localvolume.dynamic.plan.calls.content import with_content_of
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from localvolume.host.btrfs import quota, subvolumes
from localvolume.host.filesystem.inodeflags import lock_subvolume
from tests.host.support_btrfs import PATIENT, as_nobody, fill, identity_of
from tests.host.support_btrfs import pool as fresh_pool
from tests.host.support_devices import command, filesystem, immutable
from tests.host.support_killed import killed
from tests.host.support_pools import purge, store_in
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "btrfs")

SIZE = 16 * MIB
#: How a search of the tree that quotas are in begins.
QUOTA_TREE = array.array("B", struct.pack("=Q", 8))


@pytest.fixture
def root() -> Iterator[Path]:
    with filesystem("btrfs", size=512 * MIB) as where:
        yield where


@pytest.fixture
def store(root: Path) -> Iterator[PoolStore]:
    with opened(root) as store:
        yield store


def opened(root: Path) -> AbstractContextManager[PoolStore]:
    return store_in(root, backend=BtrfsBackend(counting=PATIENT), enforce=True)


def asked(name: str, size: int = SIZE) -> Record:
    return Record(name=name, backend="btrfs", state="making", directory=name, size_bytes=size)


def volume(store: PoolStore, name: str = "a", size: int = SIZE) -> Record:
    return store.offered(store.make(asked(name, size)))


def snapshot(store: PoolStore, origin: Record, name: str = "s") -> Record:
    return store.offered(store.copy(snapshot_record(origin, name, origin.size_bytes), origin))


def clone(store: PoolStore, origin: Record, name: str = "c", size: int = SIZE) -> Record:
    return store.offered(store.copy(with_content_of(origin, asked(name, size)), origin))


def remove(store: PoolStore, record: Record) -> None:
    purge(store, store.retire(record))


def committed(root: Path) -> quota.Quotas:
    """The quotas as of now, once everything that was deleted is gone."""
    fd = os.open(root, os.O_RDONLY)
    try:
        subvolumes.sync_and_clean(fd)
        subvolumes.commit(fd)
        return quota.read_quotas(fd)
    finally:
        os.close(fd)


def has_groups(root: Path, wanted: set[int]) -> None:
    until(lambda: set(committed(root).groups) - {5}, lambda found: found == wanted, seconds=120)


def counted_right(root: Path) -> None:
    """Whether what a recount finds is what was counted all along."""
    before = committed(root)
    assert before.consistent
    command("btrfs", "quota", "rescan", "-w", root)
    after = committed(root)
    assert {one: (group.referenced, group.exclusive) for one, group in before.groups.items()} == {
        one: (group.referenced, group.exclusive) for one, group in after.groups.items()
    }


def in_place(root: Path, record: Record) -> Path:
    return root / record.directory


class TestSnapshot:
    def test_what_was_written_before_is_in_it_and_nothing_later(
        self, root: Path, store: PoolStore
    ) -> None:
        origin = volume(store)
        # Neither synced nor closed.
        with (root / "a/file").open("w") as file:
            file.write("before")
            file.flush()
            made = snapshot(store, origin)
            file.write(" and after")
        assert (root / "s/file").read_text() == "before"
        assert (root / "a/file").read_text() == "before and after"
        assert made.inode == identity_of(root / "s") != origin.inode
        assert made.cut_at > 0
        assert store.look().problem == ""
        assert store.copy(snapshot_record(origin, "s", SIZE), origin) == made

    def test_nobody_can_write_to_it(self, root: Path, store: PoolStore) -> None:
        snapshot(store, volume(store))
        with pytest.raises(OSError, match="Read-only file system"):
            (root / "s/file").touch()

    def test_nobody_uses_it(self, store: PoolStore) -> None:
        made = snapshot(store, volume(store))
        with pytest.raises(NotThisVolume, match="nobody uses it"):
            store.use(made, lambda source: None)
        assert store.attach_all() == {}

    def test_it_holds_what_its_volume_did_and_that_becomes_its_own(
        self, root: Path, store: PoolStore
    ) -> None:
        origin = volume(store)
        assert fill(root / "a/file", 8 * MIB)[1] == 0
        made = snapshot(store, origin)
        assert made.holds_bytes == pytest.approx(8 * MIB, rel=0.05)
        usage = store.look().usage
        assert usage["s"].used_bytes == made.holds_bytes
        assert usage["s"].outstanding_bytes == 0
        assert usage["s"].taken_bytes is not None
        assert usage["s"].taken_bytes < MIB
        assert usage["a"].used_bytes == pytest.approx(8 * MIB, rel=0.05)
        # All of it may have to be written anew.
        assert usage["a"].outstanding_bytes == pytest.approx(SIZE, rel=0.05)
        (root / "a/file").unlink()
        assert fill(root / "a/other", 8 * MIB)[1] == 0
        committed(root)
        usage = store.look().usage
        assert usage["s"].taken_bytes == pytest.approx(8 * MIB, rel=0.05)
        assert usage["a"].outstanding_bytes == pytest.approx(8 * MIB, rel=0.1)
        counted_right(root)

    def test_of_a_full_volume(self, root: Path, store: PoolStore) -> None:
        origin = volume(store)
        written, error = fill(root / "a/file", 2 * SIZE)
        assert error == errno.EDQUOT
        snapshot(store, origin)
        assert (root / "s/file").stat().st_size == written

    def test_what_its_volume_overwrites_counts_once_for_that(
        self, root: Path, store: PoolStore
    ) -> None:
        origin = volume(store)
        assert fill(root / "a/file", 12 * MIB)[1] == 0
        for number in range(3):
            snapshot(store, origin, f"s{number}")
            os.truncate(root / "a/file", 0)
            assert fill(root / "a/file", 12 * MIB)[1] == 0
        assert fill(root / "a/other", SIZE)[1] == errno.EDQUOT
        counted_right(root)

    def test_one_that_holds_more_than_there_was_room_for_is_not_made(
        self, root: Path, store: PoolStore
    ) -> None:
        origin = volume(store)
        assert fill(root / "a/file", 8 * MIB)[1] == 0
        with pytest.raises(NoSpace, match="written to meanwhile"):
            store.copy(snapshot_record(origin, "s", 7 * MIB), origin)
        assert os.listdir(root / ".localvolume/making") == []
        has_groups(root, {origin.inode})
        # The next attempt finds room for more.
        assert store.copy(snapshot_record(origin, "s", 9 * MIB), origin).holds_bytes > 8 * MIB

    def test_many_of_one_volume(self, root: Path, store: PoolStore) -> None:
        origin = volume(store)
        (root / "a/constant").write_bytes(b"c" * MIB)
        made = []
        for number in range(100):
            (root / "a/number").write_text(str(number))
            made.append(snapshot(store, origin, f"s{number}"))
        for number, one in enumerate(made):
            assert (in_place(root, one) / "number").read_text() == str(number)
        counted_right(root)
        # In any order.
        random.Random(1).shuffle(made)
        for one in made[:60]:
            remove(store, one)
        remove(store, origin)
        for one in made[60:]:
            assert (in_place(root, one) / "constant").read_bytes() == b"c" * MIB
        until(
            lambda: set(committed(root).groups) - {5},
            lambda found: found == {one.inode for one in made[60:]},
            seconds=120,
        )
        counted_right(root)
        for one in made[60:]:
            remove(store, one)
        has_groups(root, set())
        assert store.look().records == {}

    def test_while_it_is_written_to_no_later_write_is_in_it_without_an_earlier_one(
        self, root: Path, store: PoolStore
    ) -> None:
        origin = volume(store)
        stop, begun = threading.Event(), threading.Event()

        def write() -> None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_SYNC
            first, second = os.open(root / "a/1", flags), os.open(root / "a/2", flags)
            number = 0
            while not stop.is_set():
                number += 1
                os.pwrite(first, f"{number:08}".encode(), 0)
                os.pwrite(second, f"{number:08}".encode(), 0)
                if number == 3:
                    begun.set()
            os.close(first)
            os.close(second)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert begun.wait(60)
            made = [snapshot(store, origin, f"s{number}") for number in range(10)]
        finally:
            stop.set()
            writer.join()
        for one in made:
            first, second = (int((in_place(root, one) / name).read_text()) for name in "12")
            assert first - 1 <= second <= first


class TestCopy:
    def test_of_a_snapshot_which_is_larger_and_a_volume_as_any_other(
        self, root: Path, store: PoolStore
    ) -> None:
        origin = volume(store)
        os.chmod(root / "a", 0o2751)
        os.chown(root / "a", 7, 8)
        assert fill(root / "a/file", 12 * MIB)[1] == 0
        made = snapshot(store, origin)
        restored = clone(store, made, size=2 * SIZE)
        found = (root / "c").stat()
        assert (found.st_uid, found.st_gid) == (7, 8)
        assert found.st_mode & 0o777 == 0o751
        assert (restored.made_from, restored.snapshot_of, restored.size_bytes) == (
            "s",
            "",
            2 * SIZE,
        )
        written, error = fill(root / "c/more", 2 * SIZE)
        assert error == errno.EDQUOT
        assert written == pytest.approx(20 * MIB, rel=0.05)
        assert store.attach_all() == {}
        grown = store.grow(restored, 3 * SIZE)
        assert fill(root / "c/more", SIZE - MIB)[1] == 0
        assert store.use(grown, lambda source: os.stat(source.fd).st_ino) == 256
        counted_right(root)

    def test_it_is_limited_before_it_comes_to_its_place(self) -> None:
        with fresh_pool() as here:
            origin = here.make("a")
            wanted = with_content_of(origin, asked("c", 2 * SIZE))
            made = here.backend.copy(here.fd, here.path, wanted, origin)
            assert quota.read_limit(here.fd, made.inode) == 2 * SIZE

    def test_of_a_volume_in_use(self, root: Path, store: PoolStore) -> None:
        origin = volume(store)
        with (root / "a/file").open("w") as file:
            file.write("content")
            file.flush()
            clone(store, origin)
        (root / "a/file").write_text("changed")
        assert (root / "c/file").read_text() == "content"
        (root / "c/file").write_text("changed otherwise")
        assert (root / "a/file").read_text() == "changed"

    @pytest.mark.parametrize("first", ["a", "s", "c"])
    def test_deleting_any_of_them_harms_no_other(
        self, root: Path, store: PoolStore, first: str
    ) -> None:
        origin = volume(store)
        content = os.urandom(4 * MIB)
        (root / "a/file").write_bytes(content)
        made = snapshot(store, origin)
        records = {"a": origin, "s": made, "c": clone(store, made)}
        order = [first, *(name for name in records if name != first)]
        while order:
            remove(store, records[order.pop(0)])
            for name in order:
                assert (root / name / "file").read_bytes() == content
        has_groups(root, set())
        counted_right(root)

    def test_what_is_promised_can_be_written(self, root: Path, store: PoolStore) -> None:
        """A pool filled with promises: all that is shared may be overwritten."""
        origin = volume(store, size=64 * MIB)
        assert fill(root / "a/file", 60 * MIB)[1] == 0
        names = ["a"]
        while capacity(store.config, store.look()) > 64 * MIB:
            name = f"c{len(names)}"
            clone(store, origin, name, size=64 * MIB)
            names.append(name)
        assert len(names) > 2
        for name in names:
            os.truncate(root / name / "file", 0)
            assert fill(root / name / "file", 60 * MIB)[1] == 0, name

    def test_a_pool_with_copies_promises_no_more_than_it_has(
        self, root: Path, store: PoolStore
    ) -> None:
        origin = volume(store, size=64 * MIB)
        assert fill(root / "a/file", 60 * MIB)[1] == 0
        before = capacity(store.config, store.look())
        made = snapshot(store, origin)
        after = capacity(store.config, store.look())
        assert before - after == pytest.approx(made.holds_bytes, abs=MIB)
        (root / "a/file").unlink()
        assert fill(root / "a/file", 60 * MIB)[1] == 0
        committed(root)
        assert capacity(store.config, store.look()) == pytest.approx(after, abs=2 * MIB)


class TestTenants:
    def test_subvolumes_inside_are_told_of(self, root: Path, store: PoolStore) -> None:
        origin = volume(store)
        (root / "a").chmod(0o777)
        make = "subvolumes.create_subvolume(os.open(sys.argv[1], os.O_RDONLY), 'inner')"
        root.chmod(0o755)
        as_nobody(make, root / "a")
        with pytest.raises(Impossible, match="has subvolumes or snapshots inside it"):
            snapshot(store, origin)
        with pytest.raises(Impossible, match="make directories of them"):
            clone(store, origin)
        assert sorted(os.listdir(root)) == [".localvolume", "a"]
        assert os.listdir(root / ".localvolume/making") == []
        command("btrfs", "subvolume", "delete", root / "a/inner")
        assert snapshot(store, origin).state == "offered"

    def test_one_made_read_only_is_copied(self, root: Path, store: PoolStore) -> None:
        origin = volume(store)
        (root / "a/file").write_text("content")
        fd = os.open(root / "a", os.O_RDONLY)
        lock_subvolume(fd)
        os.close(fd)
        made = snapshot(store, origin)
        clone(store, origin)
        (root / "c/file").write_text("changed")
        assert (root / "s/file").read_text() == "content"
        remove(store, made)
        remove(store, origin)

    @pytest.mark.parametrize("flag", ["+i", "+a"])
    def test_an_immutable_one_is_copied(self, root: Path, store: PoolStore, flag: str) -> None:
        origin = volume(store)
        (root / "a/inner").mkdir()
        (root / "a/inner/file").write_text("content")
        with immutable(root / "a/inner", flag), immutable(root / "a", flag):
            made, copied = snapshot(store, origin), clone(store, origin)
        assert (root / "s/inner/file").read_text() == "content"
        (root / "c/file").write_text("new")
        for one in (made, copied, origin):
            remove(store, one)
        has_groups(root, set())

    def test_what_everybody_could_write_to_is_not_in_a_snapshot(
        self, root: Path, store: PoolStore
    ) -> None:
        """Even where the pool lets everybody of the node in."""
        origin = volume(store)
        (root / "a").chmod(0o777)
        snapshot(store, origin)
        root.chmod(0o755)
        tried = """
try:
    os.open(sys.argv[1] + "/new", os.O_WRONLY | os.O_CREAT)
except OSError as error:
    print(error.strerror)
"""
        assert as_nobody(tried, root / "s").strip() == "Read-only file system"

    def test_simple_quotas_are_refused_with_the_reason(self) -> None:
        with fresh_pool(simple=True) as here:
            found = here.backend.abilities(here.fd, here.path)
            assert found.enforce
            assert "simple quotas" in found.no_copies
            made = here.make("a")
            with pytest.raises(Impossible, match="simple quotas"):
                here.backend.copy(here.fd, here.path, snapshot_record(made, "s", SIZE), made)

    def test_another_filesystem_makes_none(self) -> None:
        with filesystem("ext4") as root:
            fd = os.open(root, os.O_RDONLY)
            try:
                found = BtrfsBackend().abilities(fd, str(root))
            finally:
                os.close(fd)
            assert "not btrfs" in found.no_copies

    def test_while_everything_is_counted_it_waits(self, root: Path) -> None:
        with store_in(root, backend=BtrfsBackend(counting=(0.0, 0.0)), enforce=True) as store:
            with opened(root) as other:
                origin = volume(other)
            command("btrfs", "quota", "disable", root)
            with pytest.raises(BackendFailed, match="counting") as failed:
                snapshot(store, origin)
            assert not isinstance(failed.value, Impossible)
            until(lambda: committed(root).consistent)
            assert snapshot(store, origin).holds_bytes > 0

    def test_what_it_holds_is_never_read_from_counts_out_of_step(
        self, root: Path, store: PoolStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Somebody puts them out of step before any of our looks at them."""
        origin = volume(store)
        fill(root / "a/file", 4 * MIB)
        command("btrfs", "subvolume", "snapshot", root / "a", root / "shares")
        command("btrfs", "qgroup", "create", "7/7", root)
        member = (f"0/{identity_of(root / 'shares')}", "7/7", root)
        real, at, looks = fcntl.ioctl, 0, 0

        def disturbed(fd: int, number: int, request: Any = 0) -> Any:
            nonlocal looks
            if number == subvolumes._IOC_TREE_SEARCH_V2 and request[:8] == QUOTA_TREE:
                if looks == at:
                    command("btrfs", "qgroup", "assign", "--no-rescan", *member)
                    command("btrfs", "filesystem", "sync", root)
                looks += 1
            return real(fd, number, request)

        refused: list[str] = []
        while at <= looks:
            looks = 0
            wanted = snapshot_record(origin, f"s{at}", origin.size_bytes)
            with monkeypatch.context() as patch:
                patch.setattr(fcntl, "ioctl", disturbed)
                try:
                    store.copy(wanted, origin)
                except BackendFailed as error:
                    refused.append(str(error))
                    made = False
                else:
                    made = True
            if looks > at:
                # If it was made, all had been counted anew before.
                assert committed(root).consistent or not made
                command("btrfs", "qgroup", "remove", "--no-rescan", *member)
                command("btrfs", "quota", "rescan", "-w", root)
            at += 1
        assert refused
        assert all("counting everything anew" in one for one in refused)


class TestKilled:
    def each(
        self,
        root: Path,
        deed: Callable[[PoolStore], object],
        after: Callable[[PoolStore, int], None],
    ) -> int:
        """Kill it before each of its changes; the origin is what it was, and nothing leaks."""
        for changes in range(500):
            with opened(root) as store:
                origin = store.look().records["a"]

            def do() -> None:
                with opened(root) as store:
                    deed(store)

            died = killed(changes, do, ioctls=True)
            with opened(root) as store:
                report = store.look()
                assert (report.problem, dict(report.unreadable)) == ("", {})
                assert list(report.orphans) == [], changes
                after(store, changes)
                for record in store.look().records.values():
                    if record.name == "a":
                        continue
                    if record.state == "offered":
                        record = store.retire(record)
                    if record.state == "removed":
                        purge(store, record)
                    else:
                        store.take_away(record)
                report = store.look()
                assert (report.records, list(report.orphans)) == ({"a": origin}, []), changes
                assert sorted(os.listdir(root)) == [".localvolume", "a"], changes
                for part in ("making", "trash"):
                    assert os.listdir(root / ".localvolume" / part) == [], changes
            if not died:
                has_groups(root, {origin.inode})
                assert (root / "a/file").read_text() == "content"
                return changes
        raise AssertionError("it never ends")

    @pytest.mark.parametrize("of", ["snapshot", "clone"])
    def test_while_copying(self, root: Path, of: str) -> None:
        with opened(root) as store:
            origin = volume(store)
            (root / "a/file").write_text("content")
        wanted = (
            snapshot_record(origin, "x", SIZE)
            if of == "snapshot"
            else with_content_of(origin, asked("x", 2 * SIZE))
        )

        def after(store: PoolStore, changes: int) -> None:
            if changes % 2:
                # Nobody wants it any more.
                return
            made = store.offered(store.copy(wanted, origin))
            assert dataclasses.replace(
                made, inode=0, cut_at=0, holds_bytes=0, state="making"
            ) == dataclasses.replace(wanted, holds_bytes=0)
            assert (root / "x/file").read_text() == "content"
            if of == "snapshot":
                assert made.cut_at > 0
                with pytest.raises(OSError, match="Read-only"):
                    (root / "x/new").touch()
            else:
                fd = os.open(root, os.O_RDONLY)
                assert quota.read_limit(fd, made.inode) == 2 * SIZE
                os.close(fd)

        assert self.each(root, lambda store: store.copy(wanted, origin), after) > 20

    @pytest.mark.parametrize("state", ["made", "removed"])
    def test_while_a_snapshot_is_removed(self, root: Path, state: str) -> None:
        with opened(root) as store:
            origin = volume(store)
            (root / "a/file").write_text("content")

        def deed(store: PoolStore) -> None:
            found = store.copy(snapshot_record(origin, "x", SIZE), origin)
            if state == "made":
                store.take_away(found)
            else:
                purge(store, store.retire(store.offered(found)))

        assert self.each(root, deed, lambda store, changes: None) > 20
