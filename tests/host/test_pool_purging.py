"""Purging: everything of the volume goes, overwritten where its class demands it; nothing else."""

from __future__ import annotations

import mmap
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from localvolume.backends.model import BackendFailed, Impossible
from localvolume.host.tree.erasing import Eraser
from tests.host.support_devices import (
    command,
    filesystem,
    flush,
    formatted,
    immutable,
    mounted,
    tmpfs,
)
from tests.host.support_pools import ON_EXT4, Numbered, offer, pool_on, purge, store_in, tree, wish
from tests.suite.units import MIB

pytestmark = ON_EXT4

SECRET = b"a tenant's secret, written over and over "


def in_device(path: Path, text: bytes = SECRET) -> int:
    """How often a text is found on the disk below the filesystem."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        found, at = 0, content.find(text)
        while at >= 0:
            found, at = found + 1, content.find(text, at + 1)
        return found


@pytest.mark.parametrize("overwrite", [False, True])
def test_everything_a_volume_can_hold(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "keep").write_text("outside")
    with pool_on() as (store, where):
        record = offer(store, wish(overwrite=overwrite))
        inside = where / "pvc-1"
        (inside / "a/b/c").mkdir(parents=True)
        (inside / "a/file").write_text("x")
        os.link(inside / "a/file", inside / "a/b/same")
        (inside / "sparse").touch()
        os.truncate(inside / "sparse", 1 << 40)
        (inside / "out").symlink_to(tmp_path)
        (inside / "out-file").symlink_to(tmp_path / "keep")
        (inside / "loop").symlink_to("loop")
        os.mkfifo(inside / "fifo")
        # Opening it would be felt: it is no device at all.
        os.mknod(inside / "device", 0o600 | 0o020000, os.makedev(250, 250))
        os.mknod(inside / "disk", 0o600 | 0o060000, os.makedev(250, 250))
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(inside / "socket"))
        (inside / "lost+found").mkdir()
        (inside / "lost+found/x").write_text("x")
        (inside / "closed").mkdir(mode=0)
        (inside / "closed/y").write_text("x")
        os.mkdir(os.fsencode(inside) + b"/\xff\n")
        deep = os.open(inside, os.O_RDONLY)
        for _ in range(600):
            os.mkdir("d" * 100, dir_fd=deep)
            deeper = os.open("d" * 100, os.O_RDONLY, dir_fd=deep)
            os.close(deep)
            deep = deeper
        os.close(deep)
        told: list[tuple[int, int]] = []
        purge(store, store.retire(record), progress=lambda *now: told.append(now))
        assert tree(where) == {}
        assert (tmp_path / "keep").read_text() == "outside"
        assert told[-1][0] > 600
        assert store.look().orphans == []


@pytest.mark.parametrize("flag", ["+i", "+a"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_was_locked_by_its_tenant(flag: str, overwrite: bool) -> None:
    with pool_on() as (store, where):
        record = offer(store, wish(overwrite=overwrite))
        (where / "pvc-1/dir").mkdir()
        (where / "pvc-1/dir/file").write_text("x")
        gone = store.retire(record)
        inside = where / ".localvolume/trash" / gone.trash
        with (
            immutable(inside / "dir/file", flag),
            immutable(inside / "dir", flag),
            immutable(inside, flag),
        ):
            purge(store, gone)
        assert tree(where) == {}


class TestOverwriting:
    @pytest.mark.parametrize(("overwrite", "left"), [(True, False), (False, True)])
    def test_nothing_of_the_content_is_left_on_the_disk(self, overwrite: bool, left: bool) -> None:
        with formatted("ext4") as device:
            with mounted(device) as where, store_in(where) as store:
                record = offer(store, wish(overwrite=overwrite))
                inside = where / "pvc-1"
                (inside / "large").write_bytes(SECRET * 100_000)
                (inside / "a").mkdir()
                (inside / "a/small").write_bytes(SECRET)
                os.link(inside / "a/small", inside / "a/second")
                with open(inside / "sparse", "wb") as file:
                    file.seek(10 * MIB)
                    file.write(SECRET * 10)
                    file.truncate(20 * MIB)
                flush(where)
                purge(store, store.retire(record))
            assert (in_device(device.backing) > 0) is left

    def test_a_file_with_a_name_elsewhere_stays_as_it_is(self) -> None:
        with pool_on() as (store, where):
            record = offer(store, wish(overwrite=True))
            (where / "pvc-1/file").write_bytes(SECRET)
            (where / "pvc-1/second").hardlink_to(where / "pvc-1/file")
            (where / "backup").hardlink_to(where / "pvc-1/file")
            purge(store, store.retire(record))
            assert (where / "backup").read_bytes() == SECRET

    def test_two_names_of_one_file_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One of them must be seen to be the last, or nothing is overwritten."""
        real = os.unlink

        def slow(name: str, *, dir_fd: int) -> None:
            time.sleep(0.2)
            real(name, dir_fd=dir_fd)

        (tmp_path / "a").write_bytes(SECRET)
        (tmp_path / "b").hardlink_to(tmp_path / "a")
        erase = Eraser(overwrite=True, per_second=None, stop=threading.Event())
        directory = os.open(tmp_path, os.O_RDONLY)
        with open(tmp_path / "a", "rb") as file:
            monkeypatch.setattr(os, "unlink", slow)
            threads = [
                threading.Thread(target=erase, args=(name,), kwargs={"dir_fd": directory})
                for name in ("a", "b")
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            monkeypatch.undo()
            assert file.read() == bytes(len(SECRET))
        os.close(directory)
        assert os.listdir(tmp_path) == []

    @pytest.mark.needs("btrfs")
    def test_where_nothing_is_written_in_place(self) -> None:
        with pool_on("btrfs") as (store, where):
            where.chmod(0o755)
            with pytest.raises(Impossible, match="btrfs"):
                store.make(wish(overwrite=True))
            store.take_away(store.look().records["pvc-1"])
            assert store.make(wish()).state == "made"

    def test_stopped_in_a_large_file(self) -> None:
        with pool_on() as (store, where):
            record = offer(store, wish(overwrite=True))
            (where / "pvc-1/large").write_bytes(b"x" * (8 * MIB))
            gone = store.retire(record)
            stop = threading.Event()
            stop.set()
            with pytest.raises(BackendFailed, match="stopped"):
                purge(store, gone, stop=stop)
            assert store.look().records == {"pvc-1": gone}
            purge(store, gone)
            assert tree(where) == {}


class TestPace:
    def test_no_more_files_in_a_second_than_asked(self) -> None:
        with pool_on() as (store, where):
            record = offer(store, wish())
            for number in range(60):
                (where / f"pvc-1/{number}").touch()
            gone = store.retire(record)
            begun = time.monotonic()
            purge(store, gone, files_per_second=100.0)
            assert time.monotonic() - begun >= 0.55
            assert tree(where) == {}

    def test_a_slow_one_ends_at_once_when_stopped(self) -> None:
        with pool_on() as (store, where):
            record = offer(store, wish())
            for number in range(50):
                (where / f"pvc-1/{number}").touch()
            gone = store.retire(record)
            stop = threading.Event()
            timer = threading.Timer(0.3, stop.set)
            timer.start()
            begun = time.monotonic()
            with pytest.raises(BackendFailed, match="stopped"):
                # The next one would be due after a hundred seconds.
                purge(store, gone, files_per_second=0.01, stop=stop)
            assert time.monotonic() - begun < 60
            timer.join()
            assert len(os.listdir(where / ".localvolume/trash" / gone.trash)) > 40
            purge(store, gone)


def test_something_mounted_in_the_trash_is_not_entered() -> None:
    with pool_on() as (store, where):
        record = offer(store, wish())
        (where / "pvc-1/sub").mkdir()
        (where / "pvc-1/file").write_text("x")
        gone = store.retire(record)
        with tmpfs(where / ".localvolume/trash" / gone.trash / "sub") as inner:
            (inner / "keep").write_text("x")
            with pytest.raises(BackendFailed, match="mounted"):
                purge(store, gone)
            assert (inner / "keep").exists()
            assert store.look().records == {"pvc-1": gone}
        purge(store, gone)
        assert tree(where) == {}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_racing_swapper_never_leads_it_outside(overwrite: bool) -> None:
    """A pod that still runs swaps directories and files for links to what is not its own."""
    with pool_on() as (store, where):
        outside = offer(store, wish("pvc-victim"))
        victim = where / outside.directory
        (victim / "dir").mkdir()
        for number in range(20):
            (victim / f"dir/{number}").write_bytes(SECRET)
        (victim / "file").write_bytes(SECRET)
        before = tree(victim)
        for number in range(6):
            record = offer(store, wish(f"pvc-{number}", overwrite=overwrite))
            inside = where / record.directory
            for name in range(40):
                (inside / f"d{name}").mkdir()
                for one in range(10):
                    (inside / f"d{name}/{one}").write_text("mine")
            fd = os.open(inside, os.O_RDONLY | os.O_DIRECTORY)
            end = threading.Event()

            def swap(fd: int = fd, end: threading.Event = end) -> None:
                while not end.is_set():
                    for name in range(40):
                        _swap(fd, f"d{name}", str(victim / "dir"))
                        _swap(fd, f"f{name}", str(victim / "file"))

            thread = threading.Thread(target=swap)
            thread.start()
            try:
                gone = store.retire(record)
                # As long as somebody makes new files there is something to delete.
                stop = threading.Event()
                timer = threading.Timer(0.5, stop.set)
                timer.start()
                with suppress(BackendFailed):
                    purge(store, gone, stop=stop)
                timer.join()
            finally:
                end.set()
                thread.join()
                os.close(fd)
            assert tree(victim) == before
            purge(store, gone)
        assert store.look().orphans == []


def _swap(fd: int, name: str, target: str) -> None:
    """A directory or file becomes a link and again what it was."""
    deeds: tuple[Callable[[], object], ...] = (
        lambda: os.rename(name, f"away-{name}", src_dir_fd=fd, dst_dir_fd=fd),
        lambda: os.symlink(target, name, dir_fd=fd),
        lambda: os.unlink(name, dir_fd=fd),
        lambda: os.rename(f"away-{name}", name, src_dir_fd=fd, dst_dir_fd=fd),
        lambda: os.close(os.open(name, os.O_CREAT | os.O_EXCL, 0o600, dir_fd=fd)),
    )
    for deed in deeds:
        with suppress(OSError):
            deed()


def test_as_fast_as_rm() -> None:
    """No benchmark: only that nothing makes it many times slower.

    Whatever else the machine does may slow down one of the two alone: it is tried again then.
    """
    with pool_on() as (store, where):
        for attempt in range(5):
            took = {}
            for way in ("ours", "rm"):
                record = offer(store, wish(f"pvc-{way}-{attempt}"))
                for above in range(20):
                    (where / record.directory / f"{above}").mkdir()
                    for number in range(300):
                        (where / record.directory / f"{above}/{number}").touch()
                flush(where)
                gone = store.retire(record)
                begun = time.monotonic()
                if way == "ours":
                    purge(store, gone)
                else:
                    command("rm", "-rf", where / ".localvolume/trash" / gone.trash)
                took[way] = time.monotonic() - begun
            print(took)
            if took["ours"] < 10 * took["rm"] + 1:
                return
        raise AssertionError(took)


def test_what_is_gone_from_the_trash_is_purged() -> None:
    with pool_on() as (store, where):
        gone = store.retire(offer(store, wish()))
        shutil.rmtree(where / ".localvolume/trash" / gone.trash)
        purge(store, gone)
        purge(store, gone)
        assert store.look().records == {}


class TestAbilities:
    def test_without_quotas_nothing_is_measured_and_nothing_promised(self) -> None:
        with filesystem("tmpfs") as where:
            where.chmod(0o755)
            with store_in(where) as store:
                offer(store, wish())
                report = store.look()
                assert not report.abilities.enforce
                assert report.abilities.why_not
                assert not report.abilities.block
                assert report.usage == {}
                with pytest.raises(Impossible, match="cannot be enforced"):
                    store.make(wish("pvc-2", enforced=True))
                assert set(tree(where)) == {"pvc-1"}
                assert set(store.look().records) == {"pvc-1"}

    def test_a_directory_is_no_block_device(self) -> None:
        with pool_on() as (store, _):
            with pytest.raises(Impossible, match="block"):
                store.make(wish(volume_mode="Block"))
            with pytest.raises(Impossible, match="image"):
                store.make(wish("pvc-2", "", backend="image"))

    def test_no_two_volumes_have_one_quota_project(self) -> None:
        """OpenEBS handed out the highest it had seen and one: twice the same to two at once."""

        with filesystem("ext4") as where, store_in(where, backend=Numbered()) as store:
            store.open()
            threads = [
                threading.Thread(target=store.make, args=(wish(f"pvc-{number}"),))
                for number in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            records = store.look().records
            projects = sorted(record.project for record in records.values())
            assert projects == list(range(100_000, 100_008))
