"""Emptying a directory: everything inside goes, nothing else does."""

import fcntl
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from localvolume.host.filesystem.filesystems import looks_empty
from localvolume.host.tree import beneath
from localvolume.host.tree.deletion import (
    Bounds,
    Deleted,
    DeletionIncomplete,
    DeletionStopped,
    NestedMount,
    delete_contents,
)
from tests.host.support_devices import (
    bind,
    command,
    filesystem,
    flush,
    formatted,
    immutable,
    mounted,
    tmpfs,
)
from tests.suite.clock import LONG
from tests.suite.units import MIB

FS_IOC_SETFLAGS = 0x40086602  # linux/fs.h: _IOW('f', 2, long)

EACH = [
    pytest.param("ext4", marks=pytest.mark.needs("root", "loop", "ext4")),
    pytest.param("xfs", marks=pytest.mark.needs("root", "loop", "xfs")),
    pytest.param("btrfs", marks=pytest.mark.needs("root", "loop", "btrfs")),
    pytest.param("tmpfs", marks=pytest.mark.needs("root")),
]


def empty(
    where: Path,
    *,
    progress: Callable[[Deleted], None] | None = None,
    stop: threading.Event | None = None,
    workers: int = 4,
    alone: bool = True,
    **how: Any,
) -> Deleted:
    """Call it as cleaning does, and see (if ``alone``) that it leaves no descriptor or thread."""
    fd = os.open(where, os.O_PATH | os.O_DIRECTORY)
    descriptors, threads = set(os.listdir("/proc/self/fd")), set(threading.enumerate())
    try:
        return delete_contents(fd, progress=progress, stop=stop, workers=workers, **how)
    finally:
        # Fewer may be: what earlier tests left ends, or is closed, at any time.
        left = set(os.listdir("/proc/self/fd")) - descriptors, set(threading.enumerate()) - threads
        assert left == (set(), set()) or not alone
        os.close(fd)


def deep(where: Path, levels: int, name: str = "d") -> None:
    fd = os.open(where, os.O_PATH)
    for _ in range(levels):
        os.mkdir(name, dir_fd=fd)
        deeper = os.open(name, os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A directory whose content must survive whatever the test does."""
    directory = tmp_path / "outside"
    (directory / "sub").mkdir(parents=True)
    for path in ("precious", "sub/precious"):
        (directory / path).write_text("somebody's")
    yield directory
    for path in ("precious", "sub/precious"):
        assert (directory / path).read_text() == "somebody's"
    assert sorted(os.listdir(directory)) == ["precious", "sub"]


@pytest.mark.parametrize("fstype", EACH)
@pytest.mark.parametrize("workers", [1, 4])
def test_everything_goes_and_the_directory_stays(fstype: str, workers: int) -> None:
    with filesystem(fstype) as where:
        os.chmod(where, 0o2770)
        os.chown(where, 1234, 5678)
        for one in range(5):
            for two in range(5):
                (where / f"{one}/{two}").mkdir(parents=True)
                (where / f"{one}/{two}/file").write_bytes(b"x" * 8192)
        (where / "file").write_text("x")
        flush(where)
        deleted = empty(where, workers=workers)
        assert (deleted.files, deleted.directories) == (26, 30)
        assert deleted.bytes >= 25 * 8192
        assert looks_empty(str(where)).empty
        found = where.stat()
        assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (0o2770, 1234, 5678)
        assert empty(where) == Deleted(0, 0, 0)


@pytest.mark.parametrize("fstype", EACH)
@pytest.mark.parametrize("name", ["d", "n" * 255])
def test_deep_trees(fstype: str, name: str) -> None:
    """5,000 levels: far beyond what a path may be long, or descriptors open."""
    with filesystem(fstype) as where:
        deep(where, 5000 if name == "d" else 1000, name)
        deleted = empty(where)
        assert deleted == Deleted(1, 5000 if name == "d" else 1000, 0)
        assert looks_empty(str(where)).empty


@pytest.mark.parametrize("moving", [True, False])
def test_deep_and_bushy_whether_or_not_it_can_be_moved_up(
    tmp_path: Path, moving: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = []

    def rename(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        moves.append(target)
        if not moving:
            raise OSError(18, "another quota project")
        real(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    real = os.rename
    monkeypatch.setattr(os, "rename", rename)
    here, count = tmp_path, 0
    for level in range(12):
        for number in range(9):
            (here / f"leaf{number}").mkdir()
            (here / f"leaf{number}/file").write_text("x")
            count += 1
        here = here / f"level{level}"
        here.mkdir()
        count += 1
    deleted = empty(tmp_path, bounds=Bounds(deepest=5, kept_open=3, batch=4))
    assert (deleted.files, deleted.directories) == (12 * 9, count)
    assert os.listdir(tmp_path) == []
    assert moves


@pytest.mark.parametrize("fstype", EACH)
def test_many_entries_in_one_directory(fstype: str) -> None:
    with filesystem(fstype) as where:
        for number in range(3000):
            (where / f"directory{number}").mkdir()
            os.close(os.open(where / f"file{number}", os.O_CREAT | os.O_WRONLY))
        assert empty(where) == Deleted(3000, 3000, 0)
        assert looks_empty(str(where)).empty


@pytest.mark.parametrize("fstype", EACH)
def test_hostile_names(fstype: str) -> None:
    names = [
        *(b"-rf", b"--", b"*", b" ", b"...", b"\n", b"\\", b"~", b".hidden", b"'\"", b"%s%n"),
        *(b"$(reboot)", b"`x`", b"\xff\xfe\x80", b"\x01\x1b[2J", b"x" * 255),
        *("\u202e\u00e9\U0001f4a9".encode(), b".localvolume-deleting-0"),
    ]
    with filesystem(fstype) as where:
        for name in names:
            path = os.fsencode(where) + b"/" + name
            os.mkdir(path)
            os.close(os.open(path + b"/" + name, os.O_CREAT | os.O_WRONLY))
        deleted = empty(where)
        assert (deleted.files, deleted.directories) == (len(names), len(names))
        assert looks_empty(str(where)).empty


class TestNothingOutsideIsTouched:
    @pytest.mark.parametrize("fstype", EACH)
    def test_symbolic_links(self, fstype: str, outside: Path) -> None:
        with filesystem(fstype) as where:
            (where / "d").mkdir()
            for here in (where, where / "d"):
                (here / "absolute").symlink_to(outside)
                (here / "file").symlink_to(outside / "precious")
                (here / "relative").symlink_to(os.path.relpath(outside, here))
                (here / "up").symlink_to("..")
                (here / "self").symlink_to("self")
                (here / "nowhere").symlink_to("/nonexistent")
            assert empty(where)._replace(bytes=0) == Deleted(12, 1, 0)
            assert looks_empty(str(where)).empty

    @pytest.mark.parametrize("way", ["openat2", "step by step"])
    @pytest.mark.parametrize("workers", [1, 4])
    def test_a_directory_that_keeps_becoming_a_symbolic_link(
        self, tmp_path: Path, outside: Path, way: str, workers: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if way != "openat2":
            monkeypatch.setattr(beneath, "_openat2_works", False)
        volume, shelf = tmp_path / "volume", tmp_path / "shelf"
        volume.mkdir()
        shelf.mkdir()
        (shelf / "link").symlink_to(outside)
        over = threading.Event()
        swaps = 0

        def swap() -> None:
            """Put a full directory, then a link to the outside, under the same names."""
            nonlocal swaps
            while not over.is_set():
                for name in ("a", "a/b"):
                    try:
                        os.rename(volume / name, shelf / "directory")
                        os.symlink(outside, volume / name)
                        swaps += 1
                        os.unlink(volume / name)
                        os.rename(shelf / "directory", volume / name)
                    except OSError:
                        shutil.rmtree(shelf / "directory", ignore_errors=True)

        swapper = threading.Thread(target=swap)
        swapper.start()
        try:
            deadline = time.monotonic() + 120
            rounds = 0
            # On a busy machine the two may hardly ever meet: until they have.
            while rounds < 60 or (swaps <= 20 and time.monotonic() < deadline):
                rounds += 1
                # Made aside: a path through the volume might lead this test itself outside.
                for name in ("b/c", "b/sub", "sub"):
                    (shelf / "fresh" / name).mkdir(parents=True)
                    (shelf / "fresh" / name / "precious").write_text("tenant's")
                try:
                    os.rename(shelf / "fresh", volume / "a")
                except OSError:
                    shutil.rmtree(shelf / "fresh")
                try:
                    empty(volume, workers=workers, alone=False)
                except DeletionIncomplete as incomplete:
                    assert "keeps changing" in str(incomplete)  # noqa: PT017 - either is right
        finally:
            over.set()
            swapper.join()
        assert swaps > 20
        empty(volume)
        assert os.listdir(volume) == []

    @pytest.mark.needs("root", "loop", "ext4")
    def test_hard_links(self) -> None:
        with filesystem("ext4") as where:
            volume, kept = where / "volume", where / "kept"
            volume.mkdir()
            kept.write_bytes(b"x" * 8192)
            os.link(kept, volume / "one")
            (volume / "two").write_bytes(b"x" * 8192)
            os.link(volume / "two", volume / "three")
            flush(where)
            # The space of what has another name is not freed; that of the last name is.
            assert empty(volume) == Deleted(3, 0, 8192)
            assert kept.read_bytes() == b"x" * 8192

    @pytest.mark.needs("root")
    def test_special_files_are_removed_unopened(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        os.mknod(tmp_path / "block", 0o060600, os.makedev(240, 1))
        os.mknod(tmp_path / "null", 0o020666, os.makedev(1, 3))
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "socket"))
        done = threading.Event()

        def work() -> None:
            empty(tmp_path)
            done.set()

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        assert done.wait(60), "hangs: something was opened"
        worker.join()
        assert os.listdir(tmp_path) == []


class TestNestedMounts:
    @pytest.mark.parametrize("fstype", EACH)
    @pytest.mark.parametrize("kind", ["tmpfs", "bind of outside", "bind of itself", "file"])
    def test_nothing_is_removed(self, fstype: str, kind: str, outside: Path) -> None:
        with filesystem(fstype) as where, ExitStack() as stack:
            volume, elsewhere = where / "volume", where / "elsewhere"
            (volume / "deep/down").mkdir(parents=True)
            elsewhere.mkdir()
            (volume / "file").write_text("x")
            (elsewhere / "precious").write_text("another volume's")
            inside = volume / "deep/down"
            if kind == "tmpfs":
                stack.enter_context(tmpfs(inside))
            elif kind == "bind of outside":
                stack.enter_context(bind(outside, inside))
            elif kind == "bind of itself":
                stack.enter_context(bind(elsewhere, inside))
            else:
                inside = volume / "file"
                stack.enter_context(bind(elsewhere / "precious", inside))
            with pytest.raises(NestedMount) as caught:
                empty(volume)
            assert caught.value.path == str(inside)
            assert str(inside) in str(caught.value)
            assert sorted(os.listdir(volume)) == ["deep", "file"]
            stack.close()
            assert (elsewhere / "precious").read_text() == "another volume's"
            empty(volume)
            assert os.listdir(volume) == []

    @pytest.mark.needs("root", "loop", "ext4")
    @pytest.mark.parametrize("way", ["openat2", "step by step"])
    @pytest.mark.parametrize("kind", ["tmpfs", "bind of itself", "file", "empty tmpfs"])
    def test_one_that_came_after_the_look_is_not_entered(
        self, way: str, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if way != "openat2":
            monkeypatch.setattr(beneath, "_openat2_works", False)
        with filesystem("ext4") as where, ExitStack() as stack:
            volume, elsewhere = where / "volume", where / "elsewhere"
            (volume / "deep/down").mkdir(parents=True)
            elsewhere.mkdir()
            (elsewhere / "precious").write_text("another volume's")
            # All files of a directory go before any that lies deeper.
            (volume / "first").write_text("x")
            inside = volume / "deep/down"
            if kind == "file":
                inside = volume / "deep/file"
                inside.write_text("x")

            def unlink(name: str, *, dir_fd: int) -> None:
                os.unlink(name, dir_fd=dir_fd)
                if name == "first":
                    mount = tmpfs(inside) if kind.endswith("tmpfs") else None
                    source = elsewhere / "precious" if kind == "file" else elsewhere
                    stack.enter_context(mount or bind(source, inside))
                if name == "first" and kind == "tmpfs":
                    (inside / "data").write_text("x")

            with pytest.raises(NestedMount) as caught:
                empty(volume, unlink=unlink)
            assert caught.value.path == str(inside)
            if kind == "tmpfs":
                assert os.listdir(inside) == ["data"]
            stack.close()
            assert (elsewhere / "precious").read_text() == "another volume's"

    @pytest.mark.needs("root")
    def test_a_mount_beside_with_a_longer_name_is_no_matter(self, tmp_path: Path) -> None:
        (tmp_path / "ssd").mkdir()
        (tmp_path / "ssd-2").mkdir()
        with tmpfs(tmp_path / "ssd-2"):
            (tmp_path / "ssd/file").write_text("x")
            assert empty(tmp_path / "ssd").files == 1


class TestWhatForbidsRemoval:
    @pytest.mark.parametrize("fstype", EACH)
    def test_immutable_and_append_only(self, fstype: str) -> None:
        with filesystem(fstype) as where, ExitStack() as stack:
            for path in ("d/e", "a/e"):
                (where / path).mkdir(parents=True)
                (where / path / "file").write_text("x")
            (where / "f").write_text("x")
            (where / "g").write_text("x")
            (where / "empty").mkdir()
            for path, flag in (
                ("d/e/file", "+i"),
                ("d/e", "+i"),
                ("a/e", "+a"),
                ("f", "+i"),
                ("g", "+a"),
                ("empty", "+i"),
                (".", "+i"),
            ):
                stack.enter_context(immutable(where / path, flag))
            assert empty(where)._replace(bytes=0) == Deleted(4, 5, 0)
            assert looks_empty(str(where)).empty
            # The next tenant must be able to write.
            (where / "new").write_text("x")

    @pytest.mark.needs("root", "loop", "ext4")
    def test_an_empty_immutable_directory_becomes_writable(self) -> None:
        with filesystem("ext4") as where, immutable(where):
            empty(where)
            (where / "new").write_text("x")

    @pytest.mark.needs("root", "loop", "btrfs")
    def test_subvolumes_and_read_only_snapshots(self) -> None:
        with filesystem("btrfs") as where:
            command("btrfs", "subvolume", "create", where / "sub")
            (where / "sub/d").mkdir()
            (where / "sub/d/file").write_text("tenant's")
            command("btrfs", "subvolume", "snapshot", "-r", where / "sub", where / "snapshot")
            deleted = empty(where)
            assert (deleted.files, deleted.directories) == (2, 4)
            assert looks_empty(str(where)).empty

    @pytest.mark.parametrize("fstype", EACH)
    def test_read_only_filesystem(self, fstype: str) -> None:
        with filesystem(fstype) as where:
            (where / "file").write_text("x")
            command("mount", "-o", "remount,ro", where)
            with pytest.raises(DeletionIncomplete, match="mounted read-only") as caught:
                empty(where)
            assert caught.value.deleted == Deleted(0, 0, 0)

    @pytest.mark.needs("root", "loop", "ext4")
    def test_what_cannot_go_is_named_and_the_rest_goes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As without CAP_LINUX_IMMUTABLE."""
        real = fcntl.ioctl

        def may_not(fd: int, request: int, given: bytes) -> bytes:
            if request == FS_IOC_SETFLAGS:
                raise PermissionError(1, "Operation not permitted")
            return real(fd, request, given)

        monkeypatch.setattr(fcntl, "ioctl", may_not)
        with filesystem("ext4") as where, ExitStack() as stack:
            for number in range(30):
                (where / f"d{number}").mkdir()
                for name in ("file", "free"):
                    (where / f"d{number}/{name}").write_text("x")
                stack.enter_context(immutable(where / f"d{number}/file"))
            (where / "other").write_text("x")
            with pytest.raises(DeletionIncomplete) as caught:
                empty(where)
            assert len(caught.value.errors) == 20
            assert "/file: Operation not permitted" in caught.value.errors[0]
            assert str(caught.value).endswith("; and 10 more")
            assert caught.value.deleted._replace(bytes=0) == Deleted(31, 0, 0)
            assert len(os.listdir(where)) == 31  # with lost+found

    @pytest.mark.needs("root", "loop", "ext4")
    def test_gives_up_when_nothing_can_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tried = 0

        def fails(name: str, *, dir_fd: int) -> None:
            nonlocal tried
            tried += 1
            raise OSError(5, "Input/output error")

        with filesystem("ext4") as where:
            for number in range(2000):
                os.close(os.open(where / f"{number}", os.O_CREAT | os.O_WRONLY))
            with monkeypatch.context() as patch:
                patch.setattr(os, "unlink", fails)
                with pytest.raises(DeletionIncomplete, match="and 980 more"):
                    empty(where, workers=1)
            assert tried == 1000


class TestLostAndFound:
    @pytest.mark.needs("root", "loop", "ext4")
    def test_is_kept_and_emptied(self) -> None:
        with filesystem("ext4") as where:
            before = (where / "lost+found").stat()
            (where / "lost+found/#12/sub").mkdir(parents=True)
            (where / "lost+found/#13").write_text("recovered")
            os.setxattr(where / "lost+found", "user.note", b"tenant's")
            (where / "file").write_text("x")
            assert empty(where)._replace(bytes=0) == Deleted(2, 2, 0)
            assert os.listdir(where) == ["lost+found"]
            assert looks_empty(str(where)).empty
            after = (where / "lost+found").stat()
            assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
            assert os.listxattr(where / "lost+found") == []

    @pytest.mark.needs("root", "loop", "ext4")
    def test_of_another_kind_or_place_goes(self) -> None:
        with filesystem("ext4") as where:
            (where / "lost+found").rmdir()
            (where / "lost+found").symlink_to("/etc")
            (where / "d/lost+found").mkdir(parents=True)
            assert empty(where)._replace(bytes=0) == Deleted(1, 2, 0)
            assert os.listdir(where) == []

    @pytest.mark.needs("root")
    def test_goes_elsewhere(self) -> None:
        with tmpfs() as where:
            (where / "lost+found").mkdir()
            assert empty(where) == Deleted(0, 1, 0)


@pytest.mark.parametrize("fstype", EACH)
def test_attributes_of_the_directory_itself_go(fstype: str) -> None:
    with filesystem(fstype) as where:
        os.chmod(where, 0o750)
        command("setfacl", "-m", "u:1234:rwx,d:u:1234:rwx,d:o::r", where)
        mode = where.stat().st_mode
        try:
            os.setxattr(where, "user.secret", b"tenant's data")
        except OSError:
            assert fstype == "tmpfs"  # only since Linux 6.6
        os.setxattr(where, "trusted.ours", b"the administrator's")
        empty(where)
        assert os.listxattr(where) == ["trusted.ours"]
        assert where.stat().st_mode == mode
        (where / "new").mkdir()
        assert os.listxattr(where / "new") == []


class TestStopAndProgress:
    def test_stops_quickly(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(20):
            (tmp_path / f"{number}").mkdir()
            for name in range(500):
                os.close(os.open(tmp_path / f"{number}/{name}", os.O_CREAT | os.O_WRONLY))
        stop = threading.Event()
        asked = 0.0
        real = os.rmdir

        def rmdir(name: str, *, dir_fd: int) -> None:
            nonlocal asked
            real(name, dir_fd=dir_fd)
            asked = asked or time.monotonic()
            stop.set()

        fd = os.open(tmp_path, os.O_RDONLY)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(os, "rmdir", rmdir)
                with pytest.raises(DeletionStopped) as caught:
                    delete_contents(fd, stop=stop)
        finally:
            os.close(fd)
        assert time.monotonic() - asked < 30
        assert 0 < caught.value.deleted.files < 10_000
        # And it can be taken up again.
        again = empty(tmp_path)
        assert caught.value.deleted.files + again.files == 10_000
        assert os.listdir(tmp_path) == []

    def test_stopped_before_it_began(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        stop = threading.Event()
        stop.set()
        with pytest.raises(DeletionStopped):
            empty(tmp_path, stop=stop)
        assert os.listdir(tmp_path) == ["file"]

    def test_progress_comes_a_few_times_a_second(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.unlink

        def slow(name: str, *, dir_fd: int) -> None:
            time.sleep(0.01)  # of each thread: longer by far than between two reports
            real(name, dir_fd=dir_fd)

        for number in range(500):
            (tmp_path / f"{number}").write_text("x")
        monkeypatch.setattr(os, "unlink", slow)
        seen: list[tuple[float, Deleted, int]] = []

        def progress(deleted: Deleted) -> None:
            seen.append((time.monotonic(), deleted, threading.get_ident()))

        began = time.monotonic()
        deleted = empty(tmp_path, progress=progress)
        seconds = time.monotonic() - began
        assert 2 <= len(seen) <= seconds * 4 + 1
        assert seen[-1][1] == deleted
        assert [one[1].files for one in seen] == sorted({one[1].files for one in seen})
        assert {one[2] for one in seen} == {threading.get_ident()}

    def test_what_progress_raises_ends_it(self, tmp_path: Path) -> None:
        for number in range(20):
            deep(tmp_path, 50, f"{number}")

        def progress(deleted: Deleted) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            empty(tmp_path, progress=progress, bounds=Bounds(report=0.001))


@pytest.mark.needs("root", "loop", "ext4")
def test_what_was_removed_is_gone_after_a_power_cut() -> None:
    """The backing file as it is when the call returns, mounted elsewhere, is what would be left."""
    with formatted("ext4") as device, mounted(device) as where:
        (where / "d").mkdir()
        (where / "d/file").write_bytes(b"x" * MIB)
        flush(where)
        empty(where)
        with formatted("ext4") as copy:
            with open(copy.path, "r+b") as disk:
                disk.write(device.backing.read_bytes())
                disk.flush()
                os.fsync(disk.fileno())
            with mounted(copy) as after:
                assert os.listdir(after) == ["lost+found"]


@pytest.mark.needs("root")
def test_what_appears_after_the_reading_goes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with tmpfs() as where, monkeypatch.context() as patch:
        (where / "file").write_text("x")
        late = iter(range(3))
        real = os.unlink

        def unlink(name: str, *, dir_fd: int) -> None:
            real(name, dir_fd=dir_fd)
            for number in late:
                (where / f"late{number}").write_text("x")
                break

        patch.setattr(os, "unlink", unlink)
        assert empty(where).files == 4
        assert os.listdir(where) == []


def test_what_cannot_be_emptied_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody fills it faster than it is emptied, or the filesystem is damaged."""

    def never(name: str, *, dir_fd: int) -> None:
        raise OSError(39, "Directory not empty")

    (tmp_path / "d").mkdir()
    stop = threading.Event()
    late = threading.Timer(LONG, stop.set)
    late.start()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "rmdir", never)
            with pytest.raises(DeletionIncomplete, match="d: something keeps changing it"):
                empty(tmp_path, stop=stop)
    finally:
        late.cancel()
        late.join()


def test_a_directory_filled_meanwhile_is_emptied_too(tmp_path: Path) -> None:
    over = threading.Event()

    def fill() -> None:
        number = 0
        while not over.is_set() and number < 3000:
            number += 1
            (tmp_path / f"d{number % 7}/x").mkdir(parents=True, exist_ok=True)

    filler = threading.Thread(target=lambda: _quietly(fill))
    filler.start()
    try:
        for _ in range(5):
            empty(tmp_path, alone=False)
    finally:
        over.set()
        filler.join()
    empty(tmp_path)
    assert os.listdir(tmp_path) == []


def _quietly(work: Callable[[], None]) -> None:
    while True:
        try:
            work()
        except (FileNotFoundError, FileExistsError):
            continue  # removed under its feet: the point of the test
        return
