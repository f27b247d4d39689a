"""The blocks that a file really takes: reserve them, find where data lies, overwrite it."""

import ctypes
import errno
import os
from collections.abc import Callable, Iterator

from localvolume.host.syscalls import failed

_libc = ctypes.CDLL(None, use_errno=True)
_PIECE = 4 << 20
# Written data is synced and dropped from the cache this often, so that overwriting a large file
# does not push everybody else's data out of memory.
_SETTLE = 16 * _PIECE


def allocate(fd: int, start: int, length: int) -> None:
    """Reserve blocks for a range of an open file, and extend the file to the range's end.

    Existing content stays; the rest reads as zeros. Raises OSError: ENOSPC (then a part may be
    reserved, even beyond the end of the file: truncate it), EOPNOTSUPP if the filesystem cannot.
    Unlike ``os.posix_fallocate`` it never writes block by block instead.
    """
    while _libc.fallocate(
        ctypes.c_int(fd), ctypes.c_int(0), ctypes.c_longlong(start), ctypes.c_longlong(length)
    ):
        if ctypes.get_errno() != errno.EINTR:
            raise failed()


def data_ranges(fd: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of what was ever written to an open file; reserved blocks are holes.

    If the filesystem cannot tell, the whole file counts as written. Moves the file position.
    """
    position = 0
    while True:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        position = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, position


def has_data(fd: int) -> bool:
    """Whether anything was ever written to an open file (``data_ranges``). Raises OSError."""
    return next(data_ranges(fd), None) is not None


def overwrite(fd: int, told: Callable[[int], None]) -> None:
    """Write zeros over all data of an open file, and sync; `told` gets each piece's size in bytes.

    What `told` raises ends it early. Raises OSError.
    """
    zeros = bytes(_PIECE)
    unsettled = 0
    # Collect all ranges first: writing turns holes into data.
    for start, end in list(data_ranges(fd)):
        while start < end:
            written = os.pwrite(fd, zeros[: end - start], start)
            start += written
            unsettled += written
            if unsettled >= _SETTLE:
                _settle(fd)
                unsettled = 0
            told(written)
    _settle(fd)


def _settle(fd: int) -> None:
    os.fdatasync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
