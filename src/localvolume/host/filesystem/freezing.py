"""Filesystems that stand still for a moment, so that a cut of them is of one moment.

Whoever writes to a frozen filesystem waits, and the kernel thaws nothing by itself. So nothing may
stay frozen, whoever dies:

- Another process freezes and thaws (`freezer`), and it thaws when we die, or take too long.
- If it dies, we thaw.
- If both die, as all processes of a container do, a note tells the next one (`thaw_left`). The
  notes lie on a tmpfs: after a reboot nothing is frozen. Whoever works with a note has it locked.

The kernel lets a filesystem be frozen once: what an operator froze is refused here, and stays so.
(Where both die at the very moment at which that is refused, the next one cannot tell, and thaws.)
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from localvolume.host.block.blockdev import InUse, NotABlockDevice, exclusive_open
from localvolume.host.block.sysfs import base_of, uevent
from localvolume.host.filesystem import freezer
from localvolume.host.locks import lock_directory
from localvolume.host.mount.detached import detached_mount
from localvolume.host.syscalls import EXT_MAGIC, XFS_MAGIC, closed_after, fstatfs, ioc, syncfs
from localvolume.host.tree.entries import device_number

NOTES: Final = "/run/localvolume/.frozen"
"""Where the notes lie: on the host, for all agents of the machine."""

log = logging.getLogger(__name__)

# linux/fs.h
_FREEZE, _THAW = ioc(3, ord("X"), 119, 4), ioc(3, ord("X"), 120, 4)
_KINDS: Final = {EXT_MAGIC: "ext4", XFS_MAGIC: "xfs"}
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PATIENCE: Final = 30.0
"""How long after its time the other process may take to say how it went, in seconds."""


class FreezeFailed(Exception):
    """It could not be frozen, or not for as long as was needed: no cut is of one moment."""


class AlreadyFrozen(FreezeFailed):
    """Somebody else has frozen it: wait until they thaw it."""


class TookTooLong(FreezeFailed):
    """The time was over, and it was thawed: do less, or allow for more."""


@contextlib.contextmanager
def frozen(roots: Sequence[int], *, seconds: float, notes: str = NOTES) -> Iterator[float]:
    """Freeze the filesystems of these open directories, in order, for at most so many seconds.

    Yields when that time ends (``time.monotonic``). They are ext4 or xfs, mounted for writing and
    each on a device of its own: a btrfs makes no snapshots while it is frozen. At the end they are
    thawed, the last one first. Raises FreezeFailed (then whatever was done within counts for
    nothing), and OSError; nothing stays frozen, but for a disk that fails: then `thaw_left` tries
    again.
    """
    devices = [_named(root) for root in roots]
    for root in roots:
        # Less is left to write out while everybody waits.
        syncfs(root)
    with _noted(notes) as (place, name, note):
        deadline = time.monotonic() + seconds
        freezing = _Freezing(roots, devices, seconds, place, name, note)
        try:
            freezing.begin(deadline)
            yield deadline
        except BaseException:
            try:
                freezing.end(deadline)
            except (FreezeFailed, OSError) as error:
                log.warning("freezing %s: %s", ", ".join(devices), error)
            raise
        freezing.end(deadline)


def notes_in(notes: str = NOTES) -> list[str]:
    """The names of all notes, of the living and of the dead. Raises OSError."""
    return sorted(os.listdir(notes)) if os.path.isdir(notes) else []


def thaw_left(name: str, notes: str = NOTES) -> dict[str, str]:
    """Thaw what an agent that died has left frozen, by its note; returns what failed, by device.

    What is being frozen by somebody who lives is left alone. A disk that does not answer holds up
    the call: it must not hold up those for other notes. Raises FreezeFailed, OSError.
    """
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(closed_after(os.open(notes, _DIRECTORY)))
        lines = _of_the_dead(notes, place, name, stack)
        if lines is None:
            return {}
        if not (failed := _thaw_devices(lines)):
            os.unlink(name, dir_fd=place)
        return failed


class _Freezing:
    """The other process, as this one sees it."""

    def __init__(
        self,
        roots: Sequence[int],
        devices: Sequence[str],
        seconds: float,
        place: int,
        name: str,
        note: int,
    ) -> None:
        self._roots, self._place, self._name = roots, place, name
        numbers = [str(number) for number in (_FREEZE, _THAW, seconds, place)]
        pairs = [word for pair in zip(map(str, roots), devices, strict=True) for word in pair]
        program = [sys.executable, "-I", "-S", freezer.__file__, *numbers, name, str(note), *pairs]
        # To its input nothing is ever written: it ends when we do.
        theirs, self._input = os.pipe()
        self._output, its = os.pipe()
        try:
            self._process = subprocess.Popen(
                program,
                stdin=theirs,
                stdout=its,
                # It has the note locked for as long as it lives.
                pass_fds=(*roots, place, note),
                # Whatever signals our group, it goes on.
                start_new_session=True,
            )
        except BaseException:
            os.close(self._input)
            os.close(self._output)
            os.unlink(name, dir_fd=place)
            raise
        finally:
            os.close(theirs)
            os.close(its)
        self._said: list[list[str]] = []
        self._rest = b""

    def begin(self, deadline: float) -> None:
        """Wait until all are frozen."""
        while self._frozen() < len(self._roots):
            said = self._next(deadline)
            if said is None:
                raise FreezeFailed("the process that was to freeze it has ended")
            if said[0] == "failed":
                raise self._failed(int(said[1]), int(said[2]))
            if said[0] != "froze":
                raise TookTooLong("it could not be written out in time")

    def end(self, deadline: float) -> None:
        """Have all thawed; raises if they were not frozen until now."""
        os.close(self._input)
        try:
            while self._next(deadline) is not None:
                pass
        finally:
            os.close(self._output)
        self._process.wait()
        # Its last word may have come while all were still to be frozen.
        match self._said[-1] if self._said else None:
            case ["thawed"]:
                return
            case ["late"]:
                raise TookTooLong("it took too long, and others could not wait any more")
            case ["torn"]:
                raise FreezeFailed("somebody else has thawed it meanwhile")
            case ["stuck", number]:
                raise FreezeFailed(f"it cannot be thawed: {os.strerror(int(number))}")
            case _:
                self._thaw()
                raise FreezeFailed("the process that had it frozen has ended")

    def _frozen(self) -> int:
        return self._said.count(["froze"])

    def _failed(self, number: int, error: int) -> FreezeFailed:
        name = device_number(os.fstat(self._roots[number]).st_dev)
        if error == errno.EBUSY:
            return AlreadyFrozen(f"the filesystem on {name} is frozen already, by somebody else")
        return FreezeFailed(f"the filesystem on {name} cannot be frozen: {os.strerror(error)}")

    def _next(self, deadline: float) -> list[str] | None:
        """The next line that the process says; None once it has ended. Raises FreezeFailed."""
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        while b"\n" not in self._rest:
            left = max(0.0, deadline + _PATIENCE - time.monotonic())
            if not poll.poll(left * 1000):
                # It has the note, and thaws as soon as the disk answers.
                raise FreezeFailed("its disk does not answer")
            if not (more := os.read(self._output, 4096)):
                return None
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        self._said.append(line.decode().split())
        return self._said[-1]

    def _thaw(self) -> None:
        """Thaw what the process left frozen: what it said, and what it was at."""
        begun = self._roots[: self._frozen() + 1]
        for root in reversed(begun):
            _thaw_root(root)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._name, dir_fd=self._place)


def _named(root: int) -> str:
    """The line of a filesystem in a note. Raises FreezeFailed if that would not find it again."""
    kind = _KINDS.get(fstatfs(root).magic)
    device = os.fstat(root).st_dev
    if kind is None or not os.major(device):
        raise FreezeFailed("only an ext4 or xfs on a device of its own can be frozen")
    return f"{device_number(device)} {kind}"


@contextlib.contextmanager
def _noted(notes: str) -> Iterator[tuple[int, str, int]]:
    """Begin a note of what is frozen; yields the directory, and the note's name and open file."""
    os.makedirs(notes, mode=0o700, exist_ok=True)
    name = secrets.token_hex(8)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(closed_after(os.open(notes, _DIRECTORY)))
        # Whoever reads notes finds this one locked.
        with _alone(notes):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            note = stack.enter_context(closed_after(os.open(name, flags, 0o600, dir_fd=place)))
            fcntl.flock(note, fcntl.LOCK_EX)
        yield place, name, note


@contextlib.contextmanager
def _alone(notes: str) -> Iterator[None]:
    """Keep others from beginning a note or looking for some. Raises FreezeFailed, OSError."""
    with closed_after(os.open(notes, _DIRECTORY)) as lock:
        if not lock_directory(lock):
            raise FreezeFailed(f"{notes} is locked by somebody else")
        yield


# --- what the dead left ------------------------------------------------------------------------


def _of_the_dead(
    notes: str, place: int, name: str, stack: contextlib.ExitStack
) -> list[str] | None:
    """The lines of the note of one that lives no more, locked until the stack ends; else None."""
    with _alone(notes), contextlib.suppress(FileNotFoundError, BlockingIOError):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        note = stack.enter_context(closed_after(os.open(name, flags, dir_fd=place)))
        fcntl.flock(note, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(note).st_nlink:
            # Whose it was has thawed all and ended, after it was opened here: what is frozen now
            # was frozen by others.
            return None
        # One without lines has frozen nothing yet.
        return os.read(note, 1 << 16).decode().splitlines()
    return None


def _thaw_devices(lines: Sequence[str]) -> dict[str, str]:
    failed = {}
    for line in reversed(lines):
        device, _, kind = line.partition(" ")
        try:
            _thaw_device(device, kind)
        except (OSError, NotABlockDevice) as error:
            failed[device] = str(error)
    return failed


def _thaw_device(device: str, kind: str) -> None:
    """Thaw the filesystem on that device, mounted anywhere or nowhere. Raises OSError.

    A frozen one holds its device, which therefore is no other's, even once it is unmounted.
    """
    name = uevent(base_of(device)).get("DEVNAME")
    if name is None:
        return
    node = f"/dev/{name}"
    try:
        os.close(exclusive_open(node, write=False, device=device))
    except InUse:
        with _mounted(node, kind) as root:
            if _thaw_root(root):
                log.warning("the filesystem on %s was left frozen: thawed", node)


@contextlib.contextmanager
def _mounted(node: str, kind: str) -> Iterator[int]:
    """Yield the root of a filesystem that is in use, for writing or not. Raises OSError."""
    with contextlib.ExitStack() as stack:
        try:
            root = stack.enter_context(detached_mount(node, kind))
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            root = stack.enter_context(detached_mount(node, kind, ("ro",)))
        yield root


def _thaw_root(root: int) -> bool:
    """Whether it was frozen. Raises OSError."""
    try:
        fcntl.ioctl(root, _THAW, 0)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True
