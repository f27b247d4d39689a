"""A file kept in reserve, so that a record can be written where a filesystem has no room left.

What a removal writes down needs a file with its block and inode. Both are in the reserve already:
it is written over in its place, and gets the record's name, which frees the file of the record
before it. So what is removed gives room back, however full the disk is. (Where each write takes new
blocks, as on btrfs, the filesystem itself keeps some for that.)
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Final

from localvolume.host.syscalls import closed_after

NAME: Final = "spare"
BYTES: Final = 4096
"""What a record takes on most disks, so that the one that is freed makes room for the next reserve.
No record of a path that people can read is longer."""

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_FLAGS: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


def stock(ours: int) -> None:
    """Have the reserve in the pool's own directory, as far as there is room for it."""
    flags = _FLAGS | os.O_CREAT
    with suppress(OSError), closed_after(os.open(NAME, flags, 0o600, dir_fd=ours)) as fd:
        if os.fstat(fd).st_size < BYTES:
            _fill(fd, b"")


def take(ours: int, content: bytes, records: int, file: str) -> None:
    """Write the content into the reserve, and give that the name of a file in `records`.

    Blanks fill it up, which mean nothing in a record. Raises OSError (ENOSPC: it has been used, and
    there was no room for another since).
    """
    try:
        fd = os.open(NAME, _FLAGS, dir_fd=ours)
    except FileNotFoundError as error:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file) from error
    with closed_after(fd):
        if len(content) > BYTES or os.fstat(fd).st_size < BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file)
        _fill(fd, content)
    os.rename(NAME, file, src_dir_fd=ours, dst_dir_fd=records)


def _fill(fd: int, content: bytes) -> None:
    whole = content.ljust(BYTES, b"\n")
    done = 0
    while done < len(whole):
        done += os.pwrite(fd, whole[done:], done)
    os.fsync(fd)
