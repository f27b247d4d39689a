"""Files that share blocks: make one with all blocks of another, and count what a file shares.

A write to a shared block goes to a new one. So a file that shares may need its blocks once more.
"""

import errno
import fcntl
import os
import struct
from typing import Final

from localvolume.host.syscalls import closed_after, ioc

# linux/fs.h
_FICLONE: Final = ioc(1, 0x94, 9, 4)
# linux/fiemap.h: struct fiemap, 32 bytes, and after it the extents, 56 bytes each.
_FIEMAP: Final = ioc(3, ord("f"), 11, 32)
_HEAD, _EXTENT = struct.Struct("=QQIIII"), struct.Struct("=QQQ16xI12x")
_SYNC: Final = 1
_LAST, _SHARED = 0x1, 0x2000
_AT_ONCE: Final = 1000
_MOST: Final = 100_000
"""Looking at so many extents takes a moment."""

_BLOCK: Final = 4096
_CANNOT: Final = frozenset(
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
            return _shared(copy, _SYNC, _MOST) == _BLOCK
    except OSError as error:
        if error.errno in _CANNOT:
            return False
        raise


def shared_bytes(fd: int, *, most: int = _MOST) -> int:
    """How many bytes of an open file's blocks other files may have, too.

    At most so many extents are looked at: the others count as shared, and of a filesystem that does
    not tell all do. Raises OSError.
    """
    try:
        return _shared(fd, 0, most)
    except OSError as error:
        if error.errno in _CANNOT:
            return os.fstat(fd).st_blocks * 512
        raise


def _shared(fd: int, flags: int, most: int) -> int:
    shared = alone = seen = start = 0
    while seen < most:
        count = min(_AT_ONCE, most - seen)
        buffer = bytearray(_HEAD.size + count * _EXTENT.size)
        _HEAD.pack_into(buffer, 0, start, (1 << 64) - 1 - start, flags, 0, count, 0)
        fcntl.ioctl(fd, _FIEMAP, buffer)
        found = _HEAD.unpack_from(buffer)[3]
        for number in range(found):
            at = _HEAD.size + number * _EXTENT.size
            logical, _, length, about = _EXTENT.unpack_from(buffer, at)
            if about & _SHARED:
                shared += length
            else:
                alone += length
            if about & _LAST:
                return shared
            start = logical + length
        if not found:
            return shared
        seen += found
    return max(shared, os.fstat(fd).st_blocks * 512 - alone)
