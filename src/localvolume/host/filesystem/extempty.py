"""Whether the ext filesystem on a device holds nothing: found out by reading, and nothing written.

It is not mounted for that: even a read-only mount without its journal removes orphans and writes
errors down. What the superblock says is judged first, as nearly all that is not empty says so
there. But whoever had the device may have written anything: e2fsck then proves the counts, and
debugfs lists what is in the root directory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from localvolume.host.block.blockdev import InUse, NotABlockDevice, exclusive_open, size_bytes
from localvolume.host.filesystem.extrest import why_not_at_rest
from localvolume.host.filesystem.extsuper import SUPER_BYTES, SUPER_START
from localvolume.host.process.commands import CommandMissing, CommandTimedOut, Finished
from localvolume.host.process.commandsync import Run
from localvolume.host.tree.entries import device_number

CHECK_SECONDS: Final = 20.0
LIST_SECONDS: Final = 5.0
LOOK_SECONDS: Final = CHECK_SECONDS + 3 * LIST_SECONDS + 5.0
"""How long all of it may take."""

_ENVIRONMENT = {"LC_ALL": "C", "DEBUGFS_PAGER": "__none__"}
_CORRECTABLE = 4  # e2fsck: errors are left uncorrected
_ROOT, _LOST_AND_FOUND = "<2>", "lost+found"


class CannotTell(Exception):
    """Nobody knows whether it is empty, and the text says why: it must not pass for empty."""


def why_not_empty(path: str, device: str, run: Run) -> str | None:
    """Why the ext filesystem on a device ("major:minor") that nobody uses is no empty one, at rest
    and as large as the device; None where it is. The words are a clause: "with …", "which …".

    Blocks. Raises CannotTell, NotABlockDevice and OSError.
    """
    with _opened(path, device) as fd:
        # By the descriptor, as the path may lead to another device by now.
        through = f"/proc/{os.getpid()}/fd/{fd}"
        before = os.pread(fd, SUPER_BYTES, SUPER_START)
        why = (
            why_not_at_rest(before, size_bytes(fd))
            or _why_not_sound(through, run)
            or _why_not_bare(through, run)
        )
        if os.pread(fd, SUPER_BYTES, SUPER_START) != before:
            raise CannotTell("it changed while it was looked into")
        try:
            os.close(exclusive_open(through, write=False, device=device))
        except InUse as error:
            raise CannotTell("it came to be used while it was looked into") from error
        return why


@contextmanager
def _opened(path: str, device: str) -> Iterator[int]:
    """A descriptor of the device for reading; nothing but that very device is opened."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        found = os.fstat(place)
        if not stat.S_ISBLK(found.st_mode) or device_number(found.st_rdev) != device:
            raise NotABlockDevice(f"{path} is not the device {device} any more")
        fd = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(place)
    try:
        yield fd
    finally:
        os.close(fd)


def _why_not_sound(through: str, run: Run) -> str | None:
    """Whether all of it agrees: the maps of what is free, the counts, and every inode in use.

    With -n, e2fsck opens the device for reading only, and answers itself with no.
    """
    done = _run(run, ["e2fsck", "-fn", through], CHECK_SECONDS)
    if done.returncode == _CORRECTABLE:
        return "in which e2fsck finds something to mend"
    if done.returncode != 0:
        raise CannotTell(f"e2fsck: {_last_words(done)}")
    return None


def _why_not_bare(through: str, run: Run) -> str | None:
    """What lies in it beside lost+found, or is written on these two directories.

    In lost+found there is nothing then: it is the one inode in use that has a name.
    """
    found = _listed(_debugfs(f"ls -l -p {_ROOT}", through, run))
    directories = [_ROOT]
    for name, inode, mode in found:
        if name != _LOST_AND_FOUND or not stat.S_ISDIR(mode):
            return f"with {name!r} in it"
        directories.append(f"<{inode}>")
    for directory in directories:
        if _debugfs(f"ea_list {directory}", through, run).strip():
            return "with extended attributes on its directories"
    return None


def _listed(listing: str) -> list[tuple[str, int, int]]:
    """A directory's names, inodes and modes, from lines of "/inode/mode/uid/gid/name/size/".

    Raises CannotTell for a line of another form; a name with a newline in it makes one.
    """
    found = []
    for line in filter(None, listing.split("\n")):
        try:
            _, inode, mode, _, _, name, _, _ = line.split("/")
            found.append((name, int(inode), int(mode, 8)))
        except ValueError:
            raise CannotTell(f"debugfs lists what cannot be read: {line[:80]!r}") from None
    if not any(name == "." for name, _, _ in found):
        raise CannotTell("debugfs lists no directory")
    # An entry of inode 0 is room that is free.
    return [one for one in found if one[0] not in (".", "..") and one[1]]


def _debugfs(request: str, through: str, run: Run) -> str:
    """What debugfs answers, which opens for reading only unless it is told -w.

    It exits with 0 whatever has happened: what it says beside its version is an error.
    """
    done = _run(run, ["debugfs", "-R", request, through], LIST_SECONDS)
    said = [line for line in done.stderr.split("\n") if line and not line.startswith("debugfs ")]
    if done.returncode != 0 or said:
        raise CannotTell(f"debugfs: {said[0] if said else _last_words(done)}")
    return done.stdout


def _run(run: Run, argv: list[str], seconds: float) -> Finished:
    try:
        done = run(argv, seconds, env=_ENVIRONMENT)
    except CommandMissing as error:
        raise CannotTell(f"this agent's image lacks {error}") from error
    except CommandTimedOut as error:
        raise CannotTell(str(error)) from error
    if done.truncated:
        raise CannotTell(f"{argv[0]} says more than is read")
    return done


def _last_words(done: Finished) -> str:
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return said[-1] if said else f"exit status {done.returncode}"
