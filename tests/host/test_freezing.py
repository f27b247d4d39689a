"""Filesystems frozen for a cut: who dies when, and what is frozen afterwards (nothing)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from localvolume.dynamic.pools import Pools
from localvolume.host.filesystem import freezer
from localvolume.host.filesystem.freezing import (
    AlreadyFrozen,
    FreezeFailed,
    TookTooLong,
    frozen,
    thaw_left,
)
from localvolume.host.mount.detached import detached_mount
from localvolume.host.process.workers import Workers
from localvolume.host.syscalls import closed_after, ioc
from tests.host.support_devices import (
    LoopDevice,
    command,
    formatted,
    loop_device,
    mounted,
    unmount,
)
from tests.host.support_images import killed_at, thaw_all
from tests.suite.until import until, until_async

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs")

FREEZE, THAW = ioc(3, ord("X"), 119, 4), ioc(3, ord("X"), 120, 4)
LONG = 600.0


@dataclass
class One:
    """A filesystem that may be frozen: it is thawed in the end, whatever a test did."""

    device: LoopDevice
    kind: str
    where: Path
    fd: int

    def ask(self, number: int) -> int:
        """Freeze or thaw it; the error, 0 for none."""
        try:
            fcntl.ioctl(self.fd, number, 0)
        except OSError as error:
            return error.errno or errno.EIO
        return 0

    def is_frozen(self) -> bool:
        if self.ask(FREEZE) == errno.EBUSY:
            return True
        assert self.ask(THAW) == 0
        return False


@contextlib.contextmanager
def one(kind: str) -> Iterator[One]:
    with formatted(kind) as device, mounted(device) as where:
        fd = os.open(where, os.O_RDONLY | os.O_DIRECTORY)
        made = One(device, kind, where, fd)
        try:
            yield made
        finally:
            while not made.ask(THAW):
                pass
            os.close(fd)


@pytest.fixture
def ext4() -> Iterator[One]:
    with one("ext4") as made:
        yield made


@pytest.fixture
def xfs() -> Iterator[One]:
    with one("xfs") as made:
        yield made


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "frozen"


def are_thawed(*all_of_them: One) -> None:
    until(lambda: not any(one.is_frozen() for one in all_of_them))


def test_all_stand_still_and_go_on(ext4: One, xfs: One, notes: Path) -> None:
    written = threading.Event()

    def write() -> None:
        (xfs.where / "file").write_text("later")
        written.set()

    writer = threading.Thread(target=write)
    with frozen([ext4.fd, xfs.fd], seconds=LONG, notes=str(notes)) as deadline:
        assert ext4.is_frozen()
        assert xfs.is_frozen()
        assert time.monotonic() < deadline < time.monotonic() + LONG
        (note,) = notes.iterdir()
        assert note.read_text() == f"{ext4.device.number} ext4\n{xfs.device.number} xfs\n"
        writer.start()
        # A writer waits for as long as that lasts: here for a moment.
        assert not written.wait(0.3)
    writer.join()
    assert (xfs.where / "file").read_text() == "later"
    assert not ext4.is_frozen()
    assert not xfs.is_frozen()
    assert not list(notes.iterdir())


def test_what_was_written_before_is_on_disk(ext4: One, notes: Path) -> None:
    (ext4.where / "file").write_text("by nobody synced")
    with frozen([ext4.fd], seconds=LONG, notes=str(notes)):
        content = ext4.device.backing.read_bytes()
    assert b"by nobody synced" in content


def test_they_are_thawed_when_the_time_is_over(ext4: One, xfs: One, notes: Path) -> None:
    begun: list[float] = []

    def outlast(seconds: float) -> None:
        with frozen([ext4.fd, xfs.fd], seconds=seconds, notes=str(notes)):
            begun.append(seconds)
            are_thawed(ext4, xfs)

    # On a busy machine the time may be over before they are frozen.
    for seconds in (3, 20, 120):
        with pytest.raises(TookTooLong) as late:
            outlast(seconds)
        assert not list(notes.iterdir())
        if begun:
            break
    assert "others could not wait" in str(late.value)


def test_what_an_operator_froze_stays_frozen(ext4: One, xfs: One, notes: Path) -> None:
    assert ext4.ask(FREEZE) == 0
    for _ in range(2):
        with (
            pytest.raises(AlreadyFrozen, match="frozen already, by somebody else"),
            frozen([xfs.fd, ext4.fd], seconds=LONG, notes=str(notes)),
        ):
            pytest.fail("it was not frozen by us")
        assert not xfs.is_frozen()
        assert ext4.ask(FREEZE) == errno.EBUSY
        assert thaw_all(notes) == {}
        assert ext4.ask(FREEZE) == errno.EBUSY
    assert ext4.ask(THAW) == 0
    with frozen([xfs.fd, ext4.fd], seconds=LONG, notes=str(notes)):
        assert ext4.is_frozen()


def test_what_an_operator_froze_stays_so_where_the_time_was_over_before(
    ext4: One, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that was to freeze has said that all is thawed: there is nothing left to thaw."""
    late = tmp_path / "late"
    late.write_text("#!/bin/sh\necho late\n")
    late.chmod(0o755)
    assert ext4.ask(FREEZE) == 0
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(late))
        with pytest.raises(TookTooLong), frozen([ext4.fd], seconds=LONG, notes=str(notes)):
            pytest.fail("it was not frozen by us")
    assert ext4.ask(FREEZE) == errno.EBUSY


def test_a_note_of_which_all_is_thawed_as_it_is_opened(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose it was ended between the two calls: what is frozen by now, others have frozen."""
    notes.mkdir()
    note = notes / "0123456789abcdef"
    note.touch()
    real = fcntl.flock

    def flock(fd: int, how: int) -> None:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            note.unlink()
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert thaw_left(note.name, str(notes)) == {}
    assert not note.exists()


def test_a_cut_that_an_operator_ended_counts_for_nothing(ext4: One, xfs: One, notes: Path) -> None:
    with (
        pytest.raises(FreezeFailed, match="somebody else has thawed"),
        frozen([ext4.fd, xfs.fd], seconds=LONG, notes=str(notes)),
    ):
        assert xfs.ask(THAW) == 0
    are_thawed(ext4, xfs)
    assert not list(notes.iterdir())


@pytest.mark.needs("btrfs")
def test_a_btrfs_is_refused(ext4: One, notes: Path) -> None:
    """While it is frozen nobody can make a snapshot of it: who tries waits for ever."""
    with one("btrfs") as btrfs:
        with (
            pytest.raises(FreezeFailed, match="only an ext4 or xfs"),
            frozen([ext4.fd, btrfs.fd], seconds=LONG, notes=str(notes)),
        ):
            pytest.fail("it was frozen")
        assert not btrfs.is_frozen()
    assert not ext4.is_frozen()


def test_what_fails_within_is_raised_and_nothing_is_frozen(ext4: One, notes: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        frozen([ext4.fd], seconds=LONG, notes=str(notes)),
    ):
        raise ZeroDivisionError
    assert not ext4.is_frozen()
    assert not list(notes.iterdir())


def test_one_is_frozen_that_nobody_sees_mounted(ext4: One, notes: Path) -> None:
    with (
        detached_mount(ext4.device.path, "ext4") as root,
        frozen([root], seconds=LONG, notes=str(notes)),
    ):
        assert ext4.is_frozen()
    assert not ext4.is_frozen()


# --- who dies ----------------------------------------------------------------------------------


def freezers() -> list[int]:
    """The processes of ours that freeze something."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        # Threads and processes of other tests may end at any moment.
        with contextlib.suppress(OSError):
            for pid in (task / "children").read_text().split():
                with contextlib.suppress(OSError):
                    if b"freezer" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        found.append(int(pid))
    return found


def test_whoever_has_them_frozen_is_killed_at_any_point(
    ext4: One, xfs: One, notes: Path, tmp_path: Path
) -> None:
    def cut(_: object) -> None:
        with frozen([ext4.fd, xfs.fd], seconds=LONG, notes=str(notes)):
            assert len(list(notes.iterdir())) == 1

    for step in range(1000):
        if not killed_at(step, cut, tmp_path):
            break
        # Its process thaws, without anybody's help, and its note is of no use any more.
        are_thawed(ext4, xfs)
        until(lambda: thaw_all(notes) == {} and not list(notes.glob("*")))
        assert not ext4.is_frozen()
        assert not xfs.is_frozen()
    assert step > 5, "it was hardly watched"
    assert not list(notes.iterdir())


def test_the_process_that_has_them_frozen_is_killed(ext4: One, xfs: One, notes: Path) -> None:
    def cut() -> None:
        with frozen([ext4.fd, xfs.fd], seconds=LONG, notes=str(notes)):
            (process,) = freezers()
            os.kill(process, signal.SIGKILL)
            assert xfs.is_frozen()

    with pytest.raises(FreezeFailed, match="has ended"):
        cut()
    assert not ext4.is_frozen()
    assert not xfs.is_frozen()
    assert not list(notes.iterdir())
    assert not freezers()


BOTH_DIE = """
import os, signal, sys
from pathlib import Path
from localvolume.host.filesystem.freezing import frozen
with frozen([int(fd) for fd in sys.argv[2:]], seconds=600, notes=sys.argv[1]):
    print("frozen", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def another(notes: Path, *those: One) -> Iterator[Callable[[], None]]:
    """Another process that has them frozen; yields what kills it and its process together."""
    fds = [one.fd for one in those]
    argv = [sys.executable, "-c", BOTH_DIE, str(notes), *map(str, fds)]
    process = subprocess.Popen(argv, pass_fds=fds, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"frozen\n"

        def kill() -> None:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            # As the kernel ends a container: neither sees the other's end.
            for pid in (process.pid, *map(int, children.split())):
                os.kill(pid, signal.SIGSTOP)
            for pid in (process.pid, *map(int, children.split())):
                os.kill(pid, signal.SIGKILL)
            process.wait()
            until(lambda: not any(Path(f"/proc/{pid}/fd").exists() for pid in children.split()))

        yield kill
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("unmounted", [False, True])
def test_both_are_killed_and_the_next_one_thaws(
    ext4: One, xfs: One, notes: Path, unmounted: bool
) -> None:
    with another(notes, ext4, xfs) as kill:
        kill()
    assert ext4.is_frozen()
    assert xfs.is_frozen()
    if unmounted:
        os.close(ext4.fd)
        unmount(ext4.where)
    assert thaw_all(notes) == {}
    assert not list(notes.iterdir())
    if unmounted:
        # It is the same filesystem, frozen or not, as long as nobody thaws it.
        with mounted(ext4.device, ext4.where):
            (ext4.where / "file").touch()
        ext4.fd = os.open(ext4.where, os.O_RDONLY | os.O_DIRECTORY)
    else:
        assert not ext4.is_frozen()
    assert not xfs.is_frozen()
    assert thaw_all(notes) == {}


def test_what_is_mounted_read_only_is_thawed_too(ext4: One, notes: Path) -> None:
    command("mount", "-o", "remount,ro", ext4.where)
    with another(notes, ext4) as kill:
        kill()
    assert ext4.is_frozen()
    assert thaw_all(notes) == {}
    assert not ext4.is_frozen()
    command("mount", "-o", "remount,rw", ext4.where)


def test_what_somebody_has_frozen_who_lives_is_left_alone(ext4: One, notes: Path) -> None:
    with another(notes, ext4) as kill:
        assert thaw_all(notes) == {}
        assert ext4.is_frozen()
        kill()
        assert thaw_all(notes) == {}
        assert not ext4.is_frozen()


def test_what_an_operator_froze_is_not_noted(ext4: One, xfs: One, notes: Path) -> None:
    """Killed in the midst, both leave a note: by that, only what they froze is thawed."""
    assert ext4.ask(FREEZE) == 0
    notes.mkdir()
    with (
        closed_after(os.open(notes, os.O_RDONLY | os.O_DIRECTORY)) as place,
        closed_after(os.open(notes / "note", os.O_RDWR | os.O_CREAT)) as note,
    ):
        roots = [
            str(xfs.fd),
            f"{xfs.device.number} xfs",
            str(ext4.fd),
            f"{ext4.device.number} ext4",
        ]
        argv = [sys.executable, "-I", "-S", freezer.__file__, str(FREEZE), str(THAW), "600"]
        process = subprocess.Popen(
            [*argv, str(place), "note", str(note), *roots],
            pass_fds=[place, note, xfs.fd, ext4.fd],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"froze\n"
        assert process.stdout.readline().startswith(b"failed 1 ")
        process.kill()
        process.communicate()
    assert xfs.is_frozen()
    assert thaw_all(notes) == {}
    assert not xfs.is_frozen()
    assert ext4.ask(FREEZE) == errno.EBUSY
    assert ext4.ask(THAW) == 0


def test_a_note_that_tells_of_nothing_goes(ext4: One, notes: Path) -> None:
    assert thaw_all(notes) == {}
    notes.mkdir()
    (notes / "begun").touch()
    (notes / "gone").write_text("7:1048575 ext4\n")
    (notes / "thawed").write_text(f"{ext4.device.number} ext4\n")
    assert thaw_all(notes) == {}
    assert not list(notes.iterdir())


def test_one_that_cannot_be_thawed_is_told_and_tried_again(ext4: One, notes: Path) -> None:
    notes.mkdir()
    assert ext4.ask(FREEZE) == 0
    (notes / "left").write_text(f"{ext4.device.number} xfs\n")
    assert list(thaw_all(notes)) == [ext4.device.number]
    assert [note.name for note in notes.iterdir()] == ["left"]
    assert ext4.is_frozen()
    (notes / "left").write_text(f"{ext4.device.number} ext4\n")
    assert thaw_all(notes) == {}
    assert not ext4.is_frozen()


async def test_an_agent_thaws_before_it_looks_at_its_pools(
    ext4: One, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes.mkdir()
    assert ext4.ask(FREEZE) == 0
    (notes / "left").write_text(f"{ext4.device.number} xfs\n")
    workers = Workers()
    pools = Pools(workers, frozen=str(notes))
    try:
        for _ in range(2):
            await pools.look()
        said = [
            one.getMessage()
            for one in caplog.records
            if one.levelno == logging.ERROR and one.name.startswith("localvolume.")
        ]
        assert len(said) == 1
        assert ext4.device.number in said[0]
        (notes / "left").write_text(f"{ext4.device.number} ext4\n")
        await pools.look()
    finally:
        pools.close()
        workers.close()
    assert not ext4.is_frozen()
    assert "was left frozen: thawed" in caplog.text


async def test_a_disk_that_hangs_keeps_no_other_from_being_thawed(
    ext4: One, xfs: One, notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.ExitStack() as stack:
        hangs = stack.enter_context(loop_device(backing=xfs.where / "disk"))
        hangs.format("ext4")
        where = stack.enter_context(mounted(hangs))
        command("fsfreeze", "--freeze", where)
        # To be thawed it must be written to, and its disk takes no writes now.
        assert xfs.ask(FREEZE) == 0
        assert ext4.ask(FREEZE) == 0
        notes.mkdir()
        # The one that hangs comes first by name.
        (notes / "a").write_text(f"{hangs.number} ext4\n")
        (notes / "b").write_text(f"{ext4.device.number} ext4\n")
        workers = Workers()
        pools = Pools(workers, frozen=str(notes))
        try:
            await pools.look()
            assert not ext4.is_frozen()
            assert [note.name for note in notes.iterdir()] == ["a"]
            # So it stays while the first call still hangs.
            assert ext4.ask(FREEZE) == 0
            (notes / "c").write_text(f"{ext4.device.number} ext4\n")
            await pools.look()
            assert not ext4.is_frozen()
            assert workers.hung == {"frozen, note a": 1}
            assert "frozen, note a: no answer from the host" in caplog.text
        finally:
            assert xfs.ask(THAW) == 0
            await until_async(lambda: not workers.hung)
            pools.close()
            workers.close()
        assert not list(notes.iterdir())


def test_the_program_of_the_library_alone_runs(notes: Path) -> None:
    """Nothing is frozen by it without roots; its note goes."""
    notes.mkdir()
    with (
        closed_after(os.open(notes, os.O_RDONLY | os.O_DIRECTORY)) as place,
        closed_after(os.open(notes / "note", os.O_RDWR | os.O_CREAT)) as note,
    ):
        argv = [sys.executable, "-I", "-S", freezer.__file__, str(FREEZE), str(THAW), "60"]
        done = subprocess.run(
            [*argv, str(place), "note", str(note)],
            pass_fds=[place, note],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
    assert done.stdout == b"thawed\n"
    assert not list(notes.iterdir())
