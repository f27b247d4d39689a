"""The parts of emptying a directory: the errors, one directory on the way, one removal."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from localvolume.host.filesystem.inodeflags import unlock, unlock_beneath
from localvolume.host.tree.beneath import LeadsOutside, open_beneath

DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Deleted(NamedTuple):
    """What was removed; ``bytes`` is the disk space of files that had no other name left."""

    files: int = 0
    directories: int = 0
    bytes: int = 0


class NestedMount(Exception):
    """Something is mounted inside: unmount it first. What lies in the mount was not touched."""

    def __init__(self, path: str) -> None:
        super().__init__(f"something is mounted at {display(path)}")
        self.path = path


class DeletionStopped(Exception):
    """Stopped as asked; what ``deleted`` counts is gone."""

    def __init__(self, deleted: Deleted) -> None:
        super().__init__(f"stopped after {deleted.files} files")
        self.deleted = deleted


class DeletionIncomplete(Exception):
    """Not everything could be removed: it is not clean. ``errors``: the first 20 reasons."""

    def __init__(self, errors: list[str], deleted: Deleted, more: int = 0) -> None:
        rest = f"; and {more} more" if more else ""
        super().__init__("; ".join(errors) + rest)
        self.errors = errors
        self.deleted = deleted


@dataclass(eq=False, repr=False, slots=True)
class Directory:
    """A directory that is being removed; it lives as long as something below it does.

    First it belongs to the one thread that reads it. Then it belongs to those that work on its
    pending subdirectories, and they touch it only under the lock.
    """

    #: For the top, its whole path.
    name: str
    parent: "Directory | None"
    #: Whether it is emptied but not removed: the top, and lost+found.
    stays: bool = field(default=False, kw_only=True)
    depth: int = field(init=False)
    #: Open for the threads that work below; -1 when closed to save descriptors.
    fd: int = field(default=-1, init=False)
    #: Subdirectories not done yet.
    pending: int = field(default=0, init=False)
    #: Whether it must be read again even if all subdirectories went.
    again: bool = field(default=False, init=False)
    #: Whether anything was removed since the last pass, and how many passes removed nothing.
    progressed: bool = field(default=True, init=False)
    idle: int = field(default=0, init=False)
    #: Whether something in it could not be removed, and the names not to try again.
    failed: bool = field(default=False, init=False)
    skip: set[str] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.depth = self.parent.depth + 1 if self.parent else 0

    def leave(self, name: str) -> None:
        if self.skip is None:
            self.skip = set()
        self.skip.add(name)

    def open(self) -> tuple[int, bool]:
        """Return its descriptor, and whether the caller must close it; raises OSError.

        It is opened from the nearest directory above that is kept open.
        """
        names = []
        above = self
        while above.fd < 0 and above.parent is not None:
            names.append(above.name)
            above = above.parent
        if not names:
            return above.fd, False
        names.reverse()
        return open_beneath(above.fd, "/".join(names), DIRECTORY_FLAGS), True

    def path(self, name: str = "") -> str:
        """Return its path, or that of a name in it, for messages."""
        names = [name] if name else []
        above: Directory | None = self
        while above is not None:
            names.append(above.name)
            above = above.parent
        return "/".join(reversed(names))


def remove_name(directory: Directory, fd: int, name: str, remove: Callable[..., None]) -> None:
    """Call ``remove`` (unlink or rmdir) for a name; if flags forbid it, clear them first.

    Raises ``NestedMount`` when something is mounted there, OSError.
    """
    try:
        remove(name, dir_fd=fd)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EBUSY):
            raise
        try:
            # A directory's flags forbid removing names from it; a file's own, removing the file.
            unlocked = [unlock(fd), unlock_beneath(fd, name)]
        except LeadsOutside as other:
            if other.errno == errno.EXDEV:
                raise NestedMount(directory.path(name)) from None
            raise error from None
        if not any(unlocked):
            raise
        remove(name, dir_fd=fd)


def display(path: str) -> str:
    """Write a path of any bytes and any length as one short line of text."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    text = "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
    return text if len(text) <= 300 else f"{text[:140]} ... {text[-140:]}"
