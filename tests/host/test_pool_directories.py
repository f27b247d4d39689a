"""No path leaves the pool, and none reaches what is not the volume's own."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localvolume.backends.directory.backend import DirectoryBackend
from localvolume.backends.model import (
    BackendFailed,
    Impossible,
    Lost,
    NotThisVolume,
    Record,
    Usage,
)
from localvolume.backends.pool.pool import PoolStore
from localvolume.host.tree import trees
from tests.host.support_devices import bind, filesystem, tmpfs
from tests.host.support_pools import ON_EXT4, offer, pool_on, purge, store_in, tree, wish
from tests.suite.chance import examples

pytestmark = ON_EXT4


def refused(store: PoolStore, directory: str, match: str) -> None:
    """A volume cannot be made there, and nothing is left of the attempt."""
    where = Path(store.config.mount_dir)
    store.open()
    before = tree(where)
    with pytest.raises(BackendFailed, match=match):
        store.make(wish("pvc-refused", directory))
    assert tree(where) == before
    assert "pvc-refused" not in store.look().records


@pytest.mark.parametrize(
    "directory",
    [
        "",
        ".",
        "..",
        "../x",
        "a/../../x",
        "/etc/x",
        "a//b",
        "a/",
        "a/./b",
        ".localvolume",
        ".localvolume/trash/x",
        ".hidden",
        "lost+found",
        "lost+found/x",
        "a\0b",
        "a\nb",
        "a\x1b[2Jb",
        "a\u202eb",
        "a\udc80b",
        "x" * 256,
        "/".join(["x" * 200] * 11),
    ],
)
def test_places_that_no_volume_has(directory: str) -> None:
    with filesystem("tmpfs") as where, store_in(where) as store:
        where.chmod(0o755)
        refused(store, directory, "the directory")
        with pytest.raises(Impossible):
            store.adopt("pvc-adopted", directory)


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    directories=st.lists(
        st.one_of(
            st.lists(
                st.sampled_from(["a", "b", "..", ".", "", ".localvolume", "trash", "link", "é"]),
                min_size=1,
                max_size=4,
            ).map("/".join),
            st.text(max_size=20),
        ),
        max_size=6,
    )
)
def test_whatever_is_asked_for_stays_in_the_pool_and_in_its_own_place(
    shared_pool: tuple[PoolStore, Path, Path], directories: list[str]
) -> None:
    store, where, outside = shared_pool
    made = []
    for number, directory in enumerate(directories):
        try:
            made.append(offer(store, wish(f"pvc-{number}", directory)))
        except BackendFailed:
            continue
        (where / directory / "data").write_text(f"{number}")
    report = store.look()
    assert not report.problem
    for record in made:
        mine = record.name.removeprefix("pvc-")
        place = where / record.directory
        assert place.resolve().is_relative_to(where)
        assert (os.listdir(place), (place / "data").read_text()) == (["data"], mine)
    assert sorted(os.listdir(outside)) == ["theirs"]
    assert os.listdir(outside / "theirs") == []
    for record in made:
        purge(store, store.retire(record))
    assert set(tree(where)) == {"link"}


@pytest.fixture(scope="module")
def shared_pool(tmp_path_factory: pytest.TempPathFactory) -> object:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "theirs").mkdir()
    with pool_on() as (store, where):
        (where / "link").symlink_to(outside)
        yield store, where, outside


class TestWhatIsThereAlready:
    def test_a_foreign_directory_is_never_taken_for_ours(self) -> None:
        """kutti silently reused it: one tenant's data for the next."""
        with pool_on() as (store, where):
            (where / "pvc-refused").mkdir()
            (where / "pvc-refused" / "file").write_text("somebody's")
            refused(store, "pvc-refused", "is there already")
            (where / "pvc-refused" / "file").unlink()
            refused(store, "pvc-refused", "is there already")

    @pytest.mark.parametrize("kind", ["file", "link", "dangling", "fifo"])
    def test_nor_anything_else(self, kind: str, tmp_path: Path) -> None:
        with pool_on() as (store, where):
            place = where / "place"
            if kind == "file":
                place.write_text("x")
            elif kind == "fifo":
                os.mkfifo(place)
            else:
                place.symlink_to(tmp_path if kind == "link" else "nowhere")
            refused(store, "place", "is there already")
            refused(store, "place/below", "leads out of the pool|not a directory")
            assert os.listdir(tmp_path) == []

    def test_one_that_appears_while_it_is_made(self) -> None:
        class Overtaken(DirectoryBackend):
            def make(self, pool: int, path: str, record: Record) -> Record:
                made = super().make(pool, path, record)
                os.makedirs(f"{path}/place", exist_ok=True)
                return made

        with pool_on(backend=Overtaken()) as (store, where):
            with pytest.raises(NotThisVolume, match="something else lies at place"):
                store.make(wish("pvc-1", "place"))
            with pytest.raises(NotThisVolume):
                store.make(wish("pvc-1", "place"))
            store.take_away(store.look().records["pvc-1"])
            assert tree(where) == {"place": "d"}

    def test_the_same_where_rename_cannot_promise_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def cannot(*args: object) -> None:
            raise OSError(22, "Invalid argument")

        monkeypatch.setattr(trees, "_renameat2", cannot)
        with pool_on() as (store, where):
            assert store.make(wish("pvc-2")).state == "made"
            (where / "place").mkdir()
            record = wish("pvc-1", "place")
            with pytest.raises(NotThisVolume):
                store.make(record)
            assert os.listdir(where / "place") == []

    def test_another_volume_at_above_or_below_it(self) -> None:
        with pool_on() as (store, where):
            offer(store, wish("pvc-1", "ns/claim"))
            for directory in ("ns/claim", "ns", "ns/claim/deeper", "ns/claim/a/b/c"):
                refused(store, directory, "pvc-1")
                with pytest.raises(NotThisVolume):
                    store.adopt("pvc-adopted", directory)
            offer(store, wish("pvc-2", "ns/claim2"))
            offer(store, wish("pvc-3", "nsx"))
            assert set(tree(where)) == {"ns", "ns/claim", "ns/claim2", "nsx"}

    def test_two_at_once_for_one_place(self) -> None:
        with pool_on() as (store, _):
            store.open()
            for number in range(20):
                results: list[str] = []
                start = threading.Barrier(4)

                def make(
                    name: str,
                    directory: str,
                    results: list[str] = results,
                    start: threading.Barrier = start,
                ) -> None:
                    start.wait()
                    try:
                        store.make(wish(name, directory))
                        results.append(name)
                    except NotThisVolume:
                        results.append("")

                places = [f"d{number}", f"d{number}/a", f"d{number}/a/b", f"d{number}"]
                threads = [
                    threading.Thread(target=make, args=(f"pvc-{number}-{index}", place))
                    for index, place in enumerate(places)
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert len([name for name in results if name]) == 1
                assert len(results) == 4

    @pytest.mark.parametrize("kind", ["files", "theirs", "writable", "mount"])
    def test_a_directory_on_the_way_that_is_no_parent(self, kind: str) -> None:
        with pool_on() as (store, where):
            (where / "ns").mkdir(mode=0o755)
            if kind == "files":
                (where / "ns/file").write_text("an orphan's")
            elif kind == "theirs":
                os.chown(where / "ns", 1000, 1000)
            elif kind == "writable":
                (where / "ns").chmod(0o777)
            else:
                with tmpfs(where / "ns", options="mode=755"):
                    refused(store, "ns/claim", "leads out of the pool")
                return
            refused(store, "ns/claim", "holds files|others than root")

    def test_a_parent_made_by_an_older_provisioner(self) -> None:
        with pool_on() as (store, where):
            (where / "ns/old").mkdir(parents=True)
            store.adopt("pvc-old", "ns/old")
            (where / "ns/README").write_text("by hand")
            made = offer(store, wish("pvc-1", "ns/claim"))
            purge(store, store.retire(made))
            assert set(tree(where)) == {"ns", "ns/old", "ns/README"}

    def test_neighbours_come_and_go_in_one_parent(self) -> None:
        """Removing an empty parent and making a volume in it at the same time."""
        with pool_on() as (store, where):
            store.open()
            failed: list[BaseException] = []

            def again(name: str) -> None:
                try:
                    for _ in range(40):
                        record = offer(store, wish(name, f"ns/deep/{name}"))
                        (where / "ns/deep" / name / "data").write_text("x")
                        purge(store, store.retire(record))
                except BaseException as error:  # noqa: BLE001 - told below
                    failed.append(error)

            threads = [threading.Thread(target=again, args=(f"pvc-{one}",)) for one in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert failed == []
            assert tree(where) == {}


class TestRemoving:
    def test_something_else_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "keep").write_text("outside")
        with pool_on() as (store, where):
            for kind in ("directory", "link", "file"):
                record = offer(store, wish(f"pvc-{kind}"))
                place = where / record.directory
                place.rename(where / f"away-{kind}")
                if kind == "directory":
                    place.mkdir()
                    (place / "data").write_text("another's")
                elif kind == "link":
                    place.symlink_to(tmp_path)
                elif kind == "file":
                    place.write_text("x")
                before = tree(where)
                with pytest.raises(NotThisVolume):
                    store.retire(record)
                with pytest.raises((NotThisVolume, BackendFailed)):
                    store.take_away(record)
                assert tree(where) == before
                assert store.look().records[record.name] == record
                assert record.name in store.attach_all()
            assert (tmp_path / "keep").read_text() == "outside"

    def test_while_a_pod_has_it_mounted(self, tmp_path: Path) -> None:
        with pool_on() as (store, where):
            record = offer(store, wish("pvc-1", "ns/claim"))
            (where / "ns/claim/sub").mkdir()
            for source in ("ns/claim", "ns/claim/sub"):
                with bind(where / source, tmp_path):
                    with pytest.raises(BackendFailed, match=f"mounted at {tmp_path}"):
                        store.retire(record)
                    assert store.look().records["pvc-1"].state == "offered"
            # A neighbour's mount is none of its business.
            offer(store, wish("pvc-2", "ns/claim-2"))
            with bind(where / "ns/claim-2", tmp_path), bind(where):
                assert store.retire(record).state == "removed"

    def test_while_something_is_mounted_in_it(self) -> None:
        with pool_on() as (store, where):
            record = offer(store, wish())
            (where / "pvc-1/sub").mkdir()
            for place in ("pvc-1/sub", "pvc-1"):
                with tmpfs(where / place, options="mode=755") as inner:
                    (inner / "keep").write_text("another filesystem's")
                    with pytest.raises(BackendFailed, match=r"mounted at|lies at"):
                        store.retire(record)
                    assert (inner / "keep").exists()
            assert store.retire(record).state == "removed"

    def test_the_place_is_the_next_ones_while_it_lies_in_the_trash(self) -> None:
        with pool_on() as (store, where):
            gone = store.retire(offer(store, wish("pvc-1", "ns/claim")))
            made = offer(store, wish("pvc-2", "ns/claim"))
            (where / "ns/claim/data").write_text("the next one's")
            purge(store, gone)
            assert store.look().records == {"pvc-2": made}
            assert (where / "ns/claim/data").read_text() == "the next one's"

    def test_the_directories_above_go_with_the_last_that_needs_them(self) -> None:
        """One in the trash needs them no more."""
        with pool_on() as (store, where):
            records = [offer(store, wish(f"pvc-{one}", f"ns/deep/{one}")) for one in range(2)]
            store.retire(records[0])
            assert (where / "ns/deep/1").is_dir()
            store.retire(records[1])
            assert not (where / "ns").exists()

    def test_the_next_volume_of_a_name_while_the_last_is_in_the_trash(self) -> None:
        with pool_on() as (store, _):
            store.retire(offer(store, wish()))
            with pytest.raises(NotThisVolume, match="was removed"):
                store.make(wish())

    def test_only_what_was_removed_is_purged(self) -> None:
        with pool_on() as (store, where):
            record = offer(store, wish())
            (where / "pvc-1/data").write_text("x")
            with pytest.raises(NotThisVolume, match="offered"):
                purge(store, record)
            assert (where / "pvc-1/data").exists()

    def test_something_else_in_the_trash(self) -> None:
        with pool_on() as (store, where):
            gone = store.retire(offer(store, wish()))
            place = where / ".localvolume/trash" / gone.trash
            place.rename(where / "away")
            place.mkdir()
            (place / "data").write_text("whose?")
            with pytest.raises(NotThisVolume):
                purge(store, gone)
            assert (place / "data").exists()


class TestTakingAway:
    def test_only_what_nobody_wrote_to(self) -> None:
        with pool_on() as (store, where):
            record = offer(store, wish("pvc-1", "ns/claim"))
            (where / "ns/claim/data").write_text("x")
            with pytest.raises(NotThisVolume, match="may hold data"):
                store.take_away(record)
            assert store.look().records["pvc-1"] == record
            (where / "ns/claim/data").unlink()
            store.take_away(record)
            assert tree(where) == {}
            assert store.look().records == {}
            store.take_away(record)

    def test_a_made_one_that_somebody_wrote_to_all_the_same(self) -> None:
        with pool_on() as (store, where):
            record = store.make(wish())
            (where / "pvc-1/data").write_text("x")
            with pytest.raises(BackendFailed, match="not empty"):
                store.take_away(record)
            assert store.look().records["pvc-1"] == record
            assert (where / "pvc-1/data").read_text() == "x"

    def test_one_written_to_at_the_last_moment(self) -> None:
        class Late(DirectoryBackend):
            def is_untouched(self, pool: int, path: str, record: Record) -> bool:
                untouched = super().is_untouched(pool, path, record)
                Path(path, "pvc-1/data").write_text("x")
                return untouched

        with pool_on(backend=Late()) as (store, where):
            record = offer(store, wish())
            with pytest.raises(BackendFailed, match="not empty"):
                store.take_away(record)
            assert store.look().records["pvc-1"] == record
            assert (where / "pvc-1/data").read_text() == "x"

    def test_nothing_removed_or_adopted(self) -> None:
        with pool_on() as (store, where):
            (where / "old").mkdir()
            adopted = store.adopt("pvc-old", "old")
            gone = store.retire(offer(store, wish()))
            for record in (adopted, gone):
                with pytest.raises(NotThisVolume, match="may hold data"):
                    store.take_away(record)
            assert len(store.look().records) == 2


class TestAdopting:
    def test_its_life(self) -> None:
        with pool_on() as (store, where):
            (where / "pvc-old_ns_claim").mkdir(mode=0o777)
            (where / "pvc-old_ns_claim/data").write_text("x")
            before = (where / "pvc-old_ns_claim").stat()
            record = store.adopt("pvc-old", "pvc-old_ns_claim", size_bytes=7, claim="ns/claim")
            assert (record.adopted, record.state, record.enforced) == (True, "offered", False)
            assert (record.size_bytes, record.claim) == (7, "ns/claim")
            assert store.adopt("pvc-old", "pvc-old_ns_claim") == record
            assert stat.S_IMODE(before.st_mode) == stat.S_IMODE(
                (where / "pvc-old_ns_claim").stat().st_mode
            )
            assert store.host_path(record) == str(where / "pvc-old_ns_claim")
            assert store.attach_all() == {}
            purge(store, store.retire(record))
            assert tree(where) == {}

    def test_what_is_no_directory_of_this_filesystem(self, tmp_path: Path) -> None:
        with pool_on() as (store, where):
            (where / "file").write_text("x")
            (where / "link").symlink_to(tmp_path)
            (where / "point").mkdir()
            with tmpfs(where / "point"):
                for directory in ("file", "link", "link/x", "point", "none", "none/x"):
                    with pytest.raises(NotThisVolume):
                        store.adopt("pvc-old", directory)
            assert store.look().records == {}

    def test_one_that_became_a_mount_point_or_link(self, tmp_path: Path) -> None:
        (tmp_path / "keep").write_text("x")
        with pool_on() as (store, where):
            (where / "old").mkdir()
            record = store.adopt("pvc-old", "old")
            with tmpfs(where / "old") as inner:
                (inner / "keep").write_text("x")
                with pytest.raises(NotThisVolume):
                    store.retire(record)
                assert (inner / "keep").exists()
            (where / "old").rmdir()
            (where / "old").symlink_to(tmp_path)
            with pytest.raises(NotThisVolume):
                store.retire(record)
            assert (tmp_path / "keep").exists()

    def test_one_that_is_gone_is_not_said_to_be_removed(self) -> None:
        """Nothing tells this disk from another that was mounted in its place."""
        with pool_on() as (store, where):
            (where / "old").mkdir()
            record = store.adopt("pvc-old", "old")
            (where / "old").rmdir()
            with pytest.raises(Lost):
                store.retire(record)
            assert store.look().records == {"pvc-old": record}
            (where / "old").mkdir()
            assert store.retire(record).state == "removed"

    def test_another_place_under_the_same_name(self) -> None:
        with pool_on() as (store, where):
            (where / "old").mkdir()
            (where / "other").mkdir()
            store.adopt("pvc-old", "old")
            with pytest.raises(NotThisVolume, match="is a volume at 'old'"):
                store.adopt("pvc-old", "other")


class TestOrphans:
    def test_only_what_nothing_explains(self) -> None:
        with pool_on() as (store, where):
            offer(store, wish("pvc-1", "ns/claim"))
            offer(store, wish("pvc-2", "a/b/c"))
            store.retire(offer(store, wish("pvc-3", "gone/claim")))
            assert store.look().orphans == []
            (where / "foreign").mkdir()
            (where / "foreign/below").mkdir()
            (where / "ns/other").mkdir()
            (where / "a/b/file").write_text("x")
            (where / "link").symlink_to("/")
            os.mkdir(os.fsencode(where) + b"/\xff\xfe")
            (where / ".localvolume/trash/pvc-9.00000000").mkdir()
            (where / ".localvolume/making/pvc-9").mkdir()
            (where / ".localvolume/images/pvc-9.img").write_text("x")
            assert store.look().orphans == [
                ".localvolume/images/pvc-9.img",
                ".localvolume/making/pvc-9",
                ".localvolume/trash/pvc-9.00000000",
                "\\xff\\xfe",
                "a/b/file",
                "foreign",
                "link",
                "ns/other",
            ]

    def test_what_is_forgotten_becomes_one(self) -> None:
        with pool_on() as (store, where):
            record = offer(store, wish("pvc-1", "ns/claim"))
            (where / "ns/claim/data").write_text("kept")
            store.forget(record)
            report = store.look()
            assert (report.records, report.orphans) == ({}, ["ns"])
            assert (where / "ns/claim/data").read_text() == "kept"
            # Its neighbours are made all the same, and it can be taken back.
            offer(store, wish("pvc-2", "ns/claim-2"))
            assert store.look().orphans == ["ns/claim"]
            refused(store, "ns/claim", "is there already")
            assert store.adopt("pvc-1", "ns/claim").state == "offered"

    def test_what_is_made_or_purged_during_a_look_is_none(self) -> None:
        """A look reads the records first and the names last, and measures in between."""
        begun: list[PoolStore] = []

        class Meanwhile(DirectoryBackend):
            def usage(self, pool: int, path: str, records: Sequence[Record]) -> Mapping[str, Usage]:
                if begun:
                    store = begun.pop()
                    offer(store, wish("pvc-2", "ns/claim"))
                    store.retire(offer(store, wish("pvc-3")))
                    (old,) = (one for one in records if one.name == "pvc-old")
                    purge(store, store.retire(old))
                return super().usage(pool, path, records)

        with filesystem("tmpfs") as where, store_in(where, backend=Meanwhile()) as store:
            where.chmod(0o755)
            offer(store, wish("pvc-1"))
            offer(store, wish("pvc-old"))
            (where / "foreign").mkdir()
            begun.append(store)
            assert store.look().orphans == ["foreign"]
            assert not begun
            assert store.look().orphans == ["foreign"]

    def test_there_may_be_a_million(self) -> None:
        with pool_on() as (store, where):
            store.open()
            for number in range(1200):
                (where / f"f{number}").touch()
            assert len(store.look().orphans) == 1000


def test_what_is_forgotten_in_the_trash_is_an_orphan_and_stays() -> None:
    """Somebody wanted it kept after it was moved: without its record nothing purges it."""
    with pool_on() as (store, where):
        record = offer(store, wish("pvc-1"))
        (where / "pvc-1" / "rows").write_text("precious")
        gone = store.retire(record)
        store.forget(gone)
        purge(store, gone)
        kept = f".localvolume/trash/{gone.trash}"
        assert store.look().orphans == [kept]
        assert (where / kept / "rows").read_text() == "precious"
