"""D13: where it is not safe to say of a pool that it is a copy, nothing is written; and killed at
any moment, it ends right when it is called again."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.backends.pool.prospect import prospect
from localvolume.backends.pool.records import Records, encode
from localvolume.backends.pool.restamp import restamp
from localvolume.cli.main import main
from tests.attacks.support_copies import copied_in_place, records_in, unusable
from tests.host.support_devices import _mount, bind, command, filesystem
from tests.host.support_killed import killed
from tests.host.support_pools import config_of, offer, purge, store_in, wish
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "ext4")

NAMES = ("pvc-1", "pvc-2", "pvc-3")


@pytest.fixture
def where() -> Iterator[Path]:
    """A pool with three volumes, whose files were copied."""
    with filesystem("ext4") as where:
        filled(where)
        yield where


def filled(where: Path) -> None:
    with store_in(where) as store:
        for name in NAMES:
            offer(store, wish(name))
            (where / name / "rows").write_text(f"of {name}")
    copied_in_place(*(where / name for name in NAMES))


def restamped(where: Path, *arguments: str) -> int:
    return main(["restamp", str(where), "--wait", "0", *arguments])


def refused(where: Path, capsys: pytest.CaptureFixture[str], text: str, *arguments: str) -> None:
    """It says so, and nothing on the disk is another than it was."""
    before = state_of(where)
    assert restamped(where, *arguments) == 1
    assert f"{where}: nothing is done: " in (said := capsys.readouterr().err)
    assert text in said
    assert state_of(where) == before


def state_of(where: Path) -> dict[str, tuple[int, int, int]]:
    """What would show any change that was made in it."""
    found = {}
    for above, directories, files in os.walk(where):
        for name in (*directories, *files):
            one = Path(above, name)
            seen = one.lstat()
            # Making and removing the file that says "it is being done" leaves times alone changed.
            times = 0 if one.name == ".localvolume" else seen.st_ctime_ns
            found[str(one.relative_to(where))] = seen.st_ino, seen.st_size, times
    return found


def served(where: Path, *names: str) -> None:
    """An agent can use these volumes, grow and remove them; no other data is gone."""
    with store_in(where) as store:
        assert unusable(store) == {}
        for name in names:
            assert (where / name / "rows").read_text() == f"of {name}"
            record = store.look().records[name]
            assert record.claim_uid == f"uid-of-{name}"
            assert store.grow(record, 2 << 20).size_bytes == 2 << 20
            purge(store, store.retire(record))
            assert not (where / name).exists()


def test_without_it_nothing_is_done_with_what_was_copied(where: Path) -> None:
    with store_in(where) as store:
        assert unusable(store).keys() == set(NAMES)
    assert restamped(where) == 0
    served(where, *NAMES)


def test_it_can_be_asked_what_would_be_done(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state_of(where)
    assert restamped(where, "--dry-run") == 0
    said = capsys.readouterr().out
    assert f"{where}: pvc-1 of ns/pvc-1: would be stamped\n" in said
    assert "3 would be stamped, 0 as recorded, 0 left" in said
    assert state_of(where) == before


def test_a_pool_that_is_no_copy_is_left_as_it_is(where: Path) -> None:
    restamped(where)
    before = state_of(where)
    with store_in(where) as store:
        # Also while an agent works in it: it need not let go.
        store.open()
        before = state_of(where)
        assert restamped(where) == 0
    assert state_of(where) == before


def test_an_agent_that_works_in_it_is_left_alone(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with store_in(where) as store:
        store.open()
        refused(where, capsys, "an agent works in it still")
        assert store.look().problem == ""


def test_an_agent_lets_go_once_it_has_been_asked_to(where: Path) -> None:
    with store_in(where) as store:
        store.open()
        (where / ".localvolume" / "restamping").touch()
        assert "`localvolume restamp" in store.look().problem
        assert restamped(where) == 0
        assert unusable(store) == {}


@contextmanager
def working_in(where: Path) -> Iterator[None]:
    """As an agent that does not let go."""
    fd = os.open(where / ".localvolume" / "pool.json", os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def test_what_an_agent_does_until_it_lets_go_counts(where: Path) -> None:
    ours = where / ".localvolume"
    with ThreadPoolExecutor(1) as threads:
        with working_in(where):
            call = threads.submit(main, ["restamp", str(where), "--wait", "600"])
            until((ours / "restamping").exists)
            # As where its PersistentVolume went, and its data was to be kept.
            (ours / "records" / "pvc-2.json").unlink()
            assert not call.done()
        assert call.result() == 0
    assert records_in(where).keys() == {"pvc-1", "pvc-3"}
    served(where, "pvc-1", "pvc-3")


def test_what_is_half_done_stays_so_where_it_cannot_be_ended(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = where / ".localvolume" / "restamping"
    asked.touch()
    with working_in(where):
        refused(where, capsys, "an agent works in it still")
    with filesystem("ext4") as original:
        elsewhere(where, original)
        refused(where, capsys, f"is at {original} too")
    assert asked.exists()
    assert restamped(where) == 0
    served(where, *NAMES)


def test_what_would_be_done_is_not_said_of_what_is_half_done(where: Path) -> None:
    assert prospect(config_of(where)).problem == ""
    (where / ".localvolume" / "restamping").touch()
    assert "`localvolume restamp" in prospect(config_of(where)).problem


def test_two_calls_do_not_meet(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = os.open(where / ".localvolume", os.O_RDONLY)
    try:
        fcntl.flock(ours, fcntl.LOCK_EX)
        refused(where, capsys, "another call")
    finally:
        os.close(ours)


@pytest.mark.parametrize("what", [".localvolume", ".localvolume/pool.json"])
def test_without_a_marker_it_is_no_pool(
    where: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (where / what).rename(where / "away")
    refused(where, capsys, "copy .localvolume with the volumes")


@pytest.mark.parametrize("what", ["", ".localvolume"])
def test_nor_where_others_may_write(
    where: Path, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (where / what).chmod(0o777)
    refused(where, capsys, "could swap volumes")


def test_what_a_later_release_wrote_is_its_own(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = where / ".localvolume" / "records" / "pvc-2.json"
    record.write_text(record.read_text().replace('"version": 1', '"version": 2'))
    refused(where, capsys, "a later release wrote the records of pvc-2")


def test_what_cannot_be_read_holds_its_own_volume_alone(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (where / ".localvolume" / "records" / "pvc-2.json").write_text("{")
    assert restamped(where) == 1
    said = capsys.readouterr().out
    assert "pvc-2: left as it is: its record cannot be read: " in said
    assert "2 stamped, 0 as recorded, 1 left" in said
    served(where, "pvc-1", "pvc-3")


def elsewhere(where: Path, directory: Path) -> None:
    command("cp", "-a", f"{where}/.localvolume", directory)


def test_while_the_original_is_mounted_the_copy_is_none(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with filesystem("ext4") as original:
        elsewhere(where, original)
        refused(where, capsys, f"is at {original} too")
        shutil.rmtree(original / ".localvolume")
        below = original / "below"
        below.mkdir()
        elsewhere(where, below)
        refused(where, capsys, f"is at {below} too")
        # What anybody may write to is no pool, but what somebody wrote into a volume.
        below.chmod(0o777)
        # What is on no disk is not asked: a server that does not answer would hold the call.
        (original / "server").mkdir()
        with _mount(["-t", "ramfs", "ramfs"], original / "server") as server:
            server.chmod(0o755)
            elsewhere(where, server)
            assert restamped(where) == 0


def test_nor_beside_it_or_where_it_was_on_its_own_disk(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with filesystem("ext4") as disk, filesystem("ext4") as other:
        where, beside = disk / "deep" / "pool", disk / "deep" / "beside"
        for directory in (where, beside, other / "deep" / "pool"):
            directory.mkdir(parents=True)
        filled(where)
        elsewhere(where, beside)
        refused(where, capsys, f"is at {beside} too")
        shutil.rmtree(beside)
        elsewhere(where, other / "deep" / "pool")
        refused(where, capsys, f"is at {other}/deep/pool too")
        shutil.rmtree(other / "deep")
        # It itself, seen a second time, is no other.
        with bind(where):
            assert restamped(where) == 0


def test_what_is_missing_is_told_and_the_others_are_served(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (where / "pvc-2").rename(where / "away")
    before = records_in(where)["pvc-2"]
    assert restamped(where) == 1
    said = capsys.readouterr().out
    assert "pvc-2 of ns/pvc-2: left as it is: nothing lies where it should" in said
    assert records_in(where)["pvc-2"] == before
    with store_in(where) as store:
        assert unusable(store).keys() == {"pvc-2"}
    # Copied after all.
    (where / "away").rename(where / "pvc-2")
    assert restamped(where) == 0
    served(where, *NAMES)


@pytest.mark.parametrize("what", ["link", "file", "mount"])
def test_what_is_not_in_the_pool_is_no_volume(
    where: Path, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(where / "pvc-2")
    before = records_in(where)["pvc-2"]
    match what:
        case "link":
            (where / "pvc-2").symlink_to(tmp_path)
        case "file":
            (where / "pvc-2").touch()
        case "mount":
            (where / "pvc-2").mkdir()
    if what == "mount":
        with filesystem("ext4") as other, bind(other, where / "pvc-2"):
            assert restamped(where) == 1
    else:
        assert restamped(where) == 1
    assert "pvc-2 of ns/pvc-2: left as it is: " in capsys.readouterr().out
    assert records_in(where)["pvc-2"] == before
    for name in ("pvc-1", "pvc-3"):
        assert records_in(where)[name].inode == (where / name).stat().st_ino


def test_volumes_that_were_swapped_are_nobodys_until_somebody_has_looked(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    restamped(where)
    (where / "pvc-1").rename(where / "away")
    (where / "pvc-2").rename(where / "pvc-1")
    (where / "away").rename(where / "pvc-2")
    capsys.readouterr()
    refused(where, capsys, "pvc-1: the record of pvc-2 is of what lies there")
    assert restamped(where, "--by-name") == 0
    assert records_in(where)["pvc-1"].inode == (where / "pvc-1").stat().st_ino


def test_what_was_removed_before_it_was_copied_is_purged(where: Path) -> None:
    restamped(where)
    with store_in(where) as store:
        gone = store.retire(store.look().records["pvc-1"])
    trash = where / ".localvolume" / "trash" / gone.trash
    # The second time its name in the trash is not made of the inode that its record tells.
    for _ in range(2):
        copied_in_place(trash)
        assert restamped(where) == 0
    with store_in(where) as store:
        purge(store, gone)
        assert not trash.exists()
        assert "pvc-1" not in store.look().records
        assert store.look().orphans == []


def test_a_removal_whose_record_was_not_written_yet_is_ended(where: Path) -> None:
    restamped(where)
    before = records_in(where)["pvc-1"]
    with store_in(where) as store:
        gone = store.retire(before)
    trash = where / ".localvolume" / "trash" / gone.trash
    record = where / ".localvolume" / "records" / "pvc-1.json"
    record.write_bytes(encode(before))
    copied_in_place(trash)
    assert restamped(where) == 0
    with store_in(where) as store:
        purge(store, store.retire(before))
        assert not trash.exists()
        assert store.look().orphans == []


def test_one_image_under_two_names_is_nobodys(
    where: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = where / ".localvolume" / "images"
    with opened_records(where) as records:
        for name in ("img-1", "img-2", "img-3"):
            asked = wish(name, "", backend="image", volume_mode="Block", inode=7)
            records.write(replace(asked, state="offered"))
    (images / "img-1.img").touch()
    (images / "img-3.img").touch()
    os.link(images / "img-1.img", images / "img-2.img")
    assert restamped(where) == 1
    assert "img-1 of ns/img-1: left as it is: the same lies where img-2" in capsys.readouterr().out
    inodes = {name: record.inode for name, record in records_in(where).items()}
    assert (inodes["img-1"], inodes["img-2"]) == (7, 7)
    assert inodes["img-3"] == (images / "img-3.img").stat().st_ino


@contextmanager
def opened_records(where: Path) -> Iterator[Records]:
    fd = os.open(where / ".localvolume" / "records", os.O_RDONLY)
    try:
        yield Records(fd)
    finally:
        os.close(fd)


def test_killed_at_any_moment_it_ends_right_when_it_is_called_again() -> None:
    with filesystem("ext4") as where:
        filled(where)
        asked = where / ".localvolume" / "restamping"

        def call() -> None:
            restamp(str(where))

        half = 0
        for changes in range(100):
            was_killed = killed(changes, call)
            with store_in(where) as store:
                found = unusable(store)
            # All of them or none: nothing is served from a pool that is half done.
            assert found.keys() in ({""}, set(NAMES), set()), changes
            half += asked.exists()
            call()
            assert not asked.exists()
            with store_in(where) as store:
                assert unusable(store) == {}, changes
            for name in NAMES:
                assert (where / name / "rows").read_text() == f"of {name}"
            if not was_killed:
                break
            copied_in_place(*(where / name for name in NAMES))
        assert half > 5
        served(where, *NAMES)
