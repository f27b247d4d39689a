"""Files that share blocks: make one with all blocks of another, and count what a file shares.

A write to a shared block goes to a new one. So a file that shares may need its blocks once more.
"""

import errno
import fcntl
import os
from typing import Final

from localvolume.host.filesystem.extents import AT_ONCE, extents
from localvolume.host.syscalls import closed_after, ioc

# linux/fs.h
_FICLONE: Final = ioc(1, 0x94, 9, 4)
_MOST: Final = 100_000
"""Looking at so many extents takes a moment."""

_BLOCK: Final = 4096
CANNOT: Final = frozenset(
    {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS, errno.EISDIR, errno.EXDEV}
)
"""The filesystem has no such call, however it says so."""


def clone(fd: int, source: int) -> None:
    """Give an empty file, open for writing, the content that another has at one moment.

    Nobody writes to the other file meanwhile: the kernel sees to that. Raises OSError: EOPNOTSUPP
    if the filesystem cannot, ENOSPC and EDQUOT if it has no room for its tables.
    """
    fcntl.ioctl(fd, _FICLONE, source)


def can_clone(directory: int) -> bool:
    """Whether the filesystem of an open directory can clone files, and tell what they share.

    Tried on two files that have no name. Raises OSError if it cannot be tried now.
    """
    flags = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
    try:
        with (
            closed_after(os.open(".", flags, 0o600, dir_fd=directory)) as source,
            closed_after(os.open(".", flags, 0o600, dir_fd=directory)) as copy,
        ):
            os.write(source, b"\1" * _BLOCK)
            clone(copy, source)
            return _shared(copy, _MOST, sync=True) == _BLOCK
    except OSError as error:
        if error.errno in CANNOT:
            return False
        raise


def shared_bytes(fd: int, *, most: int = _MOST) -> int:
    """How many bytes of an open file's blocks other files may have, too.

    At most so many extents are looked at: the others count as shared, and of a filesystem that does
    not tell all do. Raises OSError.
    """
    try:
        return _shared(fd, most, sync=False)
    except OSError as error:
        if error.errno in CANNOT:
            return os.fstat(fd).st_blocks * 512
        raise


def _shared(fd: int, most: int, *, sync: bool) -> int:
    shared = alone = seen = start = 0
    while seen < most:
        found = extents(fd, start, most=min(AT_ONCE, most - seen), sync=sync)
        for one in found:
            if one.is_shared:
                shared += one.length
            else:
                alone += one.length
            if one.is_last:
                return shared
            start = one.start + one.length
        if not found:
            return shared
        seen += len(found)
    return max(shared, os.fstat(fd).st_blocks * 512 - alone)
