"""The kubelet's paths: where a volume is mounted, made and removed without following links there.

The directory that holds a place is opened once, and all is done from there: nothing that is renamed
meanwhile leads elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from localvolume.backends.model import OURS
from localvolume.csi.wire.errors import FailedPrecondition, InvalidArgument, Unavailable
from localvolume.host.mount.binding import unmount
from localvolume.host.mount.mounts import MountTable, read_mount_table
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.trees import holds_anything

_PARENT: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_HERE: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_STACKED: Final = 16
_DIRECTORY_MODE: Final = 0o750
_FILE_MODE: Final = 0o600
_MOST_BYTES: Final = 4095

_LOOKED_AT_SECONDS: Final = 2.0
"""How long a mount may stay in use before a call fails for that: the agent itself opens a volume
for a moment to see how it is, and so do others on the node."""
_AGAIN_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Place:
    """A path whose directory is open as `parent`; `path` has no links before its last name."""

    parent: int
    name: str
    path: str

    def open(self) -> int:
        """Open what is there (O_PATH; not what a link leads to). Raises OSError."""
        return os.open(self.name, _HERE, dir_fd=self.parent)


def fault_of(path: str) -> str:
    """Why a volume cannot be mounted at that path, in words; "" if nothing is wrong with it."""
    # normpath keeps two slashes at the beginning.
    is_clean = os.path.normpath(path) == path and not path.startswith("//")
    if not is_clean or not path.startswith("/") or path == "/":
        return f"{path!r} is no absolute, clean path of a directory below the root"
    if "\0" in path or len(os.fsencode(path)) > _MOST_BYTES:
        return "the path has a NUL, or is longer than the kernel takes"
    return ""


@contextmanager
def place_at(path: str, ours: Sequence[str] = ()) -> Iterator[Place]:
    """Open the directory that holds a path without faults. Raises FileNotFoundError, OSError.

    Raises InvalidArgument for a path in a pool, or below one of the directories `ours`.
    """
    above, name = os.path.split(path)
    with closed_after(os.open(above, _PARENT)) as parent:
        real = os.readlink(f"/proc/self/fd/{parent}")
        for one in ours:
            if f"{real}/".startswith(f"{os.path.realpath(one)}/"):
                raise InvalidArgument(f"{path} lies in {one}, where our own sockets are")
        if pool := _pool_around(real):
            raise InvalidArgument(f"{path} lies in {pool}, which is a pool of volumes")
        yield Place(parent, name, f"{real.rstrip('/')}/{name}")


def _pool_around(directory: str) -> str:
    while True:
        if os.path.lexists(f"{directory.rstrip('/')}/{OURS}"):
            return directory
        if directory == "/":
            return ""
        directory = os.path.dirname(directory)


def mount_table() -> MountTable:
    """All mounts. Raises Unavailable if they keep changing, OSError."""
    table = read_mount_table()
    if not table.settled:
        raise Unavailable("the mounts of this node keep changing: ask again")
    return table


def make_target(place: Place, *, directory: bool) -> None:
    """Make the empty directory or file that a volume is mounted on, if it is not there.

    Raises FailedPrecondition if anything else is there, OSError.
    """
    try:
        if directory:
            os.mkdir(place.name, _DIRECTORY_MODE, dir_fd=place.parent)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(place.name, flags, _FILE_MODE, dir_fd=place.parent))
    except FileExistsError:
        check_empty(place, directory=directory)


def check_empty(place: Place, *, directory: bool) -> None:
    """Raise FailedPrecondition unless an empty directory or file is there, OSError."""
    found = _status(place)
    if directory:
        is_fit = stat.S_ISDIR(found.st_mode) and not _holds_anything(place)
    else:
        is_fit = stat.S_ISREG(found.st_mode) and found.st_size == 0
    if not is_fit:
        kind = "directory" if directory else "file"
        raise FailedPrecondition(f"{place.path} is no empty {kind}: nothing is mounted over it")


def remove_target(place: Place) -> None:
    """Remove the empty directory or file that a volume was mounted on; nothing if it is gone.

    Raises FailedPrecondition for whatever else is there, which stays. Raises OSError.
    """
    try:
        found = _status(place)
        if stat.S_ISDIR(found.st_mode):
            os.rmdir(place.name, dir_fd=place.parent)
        elif stat.S_ISREG(found.st_mode) and found.st_size == 0:
            os.unlink(place.name, dir_fd=place.parent)
        else:
            raise FailedPrecondition(f"{place.path} is neither a directory nor an empty file: kept")
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        raise FailedPrecondition(
            f"{place.path} is no mount, and holds files: they are kept, look at them"
        ) from error


def unmount_all(place: Place) -> None:
    """Take away all that is mounted there. Raises FailedPrecondition if it stays in use, OSError.

    Whatever it is: a volume whose disk is gone can be told from nothing, and has to be let go.
    """
    until = time.monotonic() + _LOOKED_AT_SECONDS
    for _ in range(_MOST_STACKED):
        if not _unmount_one(place, until):
            return
    raise FailedPrecondition(f"{place.path} is mounted again and again")


def _unmount_one(place: Place, until: float) -> bool:
    """Take away the topmost mount; returns False if there is none. If it is in use, tries again
    until that time (time.monotonic), then raises FailedPrecondition."""
    while True:
        try:
            return unmount(f"/proc/self/fd/{place.parent}/{place.name}")
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            if time.monotonic() >= until:
                raise FailedPrecondition(
                    f"{place.path} is in use: it cannot be unmounted"
                ) from error
        time.sleep(_AGAIN_SECONDS)


def _status(place: Place) -> os.stat_result:
    return os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)


def _holds_anything(place: Place) -> bool:
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with closed_after(os.open(place.name, flags, dir_fd=place.parent)) as fd:
        return holds_anything(fd)
