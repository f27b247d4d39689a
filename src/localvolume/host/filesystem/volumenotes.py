"""A note on a filesystem's root that no tenant can see or change: a trusted extended attribute.

Reading or writing `trusted.*` takes CAP_SYS_ADMIN in the initial user namespace (xattr(7)); nobody
else even sees it. Deleting all files leaves it, because it belongs to the root directory.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from localvolume.host.syscalls import mount_id

NAME: Final = "trusted.localvolume"
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_HERE: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS})
_NOT_WRITABLE: Final = _NOT_HERE | {errno.EPERM, errno.EROFS}


class NoNotes(Exception):
    """The filesystem takes no such notes, or not now, or this process may not write one."""


class AnotherMount(Exception):
    """The path leads to another mount than before: look again."""


def open_root(path: str, mount: int | None) -> int:
    """Open the directory at the path; `mount` is the mount id it must have, None for any.

    Raises AnotherMount, OSError.
    """
    fd = os.open(path, _OPEN)
    if mount is not None and mount_id(fd) != mount:
        os.close(fd)
        raise AnotherMount(f"{path}: another filesystem is mounted there now")
    return fd


def read_note(fd: int) -> bytes | None:
    """Read the note on an open directory; None if there is none. Raises NoNotes, OSError."""
    try:
        return os.getxattr(fd, NAME)
    except OSError as error:
        if error.errno == errno.ENODATA:
            return None
        if error.errno in _NOT_HERE:
            raise NoNotes(error.strerror) from error
        raise


def write_note(fd: int, content: bytes) -> None:
    """Write the note and sync it to disk. Raises NoNotes, OSError."""
    try:
        os.setxattr(fd, NAME, content)
    except OSError as error:
        if error.errno in _NOT_WRITABLE:
            raise NoNotes(error.strerror) from error
        raise
    os.fsync(fd)


def remove_note(fd: int) -> bool:
    """Remove the note; False if there was none. Raises OSError."""
    try:
        os.removexattr(fd, NAME)
    except OSError as error:
        if error.errno == errno.ENODATA or error.errno in _NOT_HERE:
            return False
        raise
    os.fsync(fd)
    return True
