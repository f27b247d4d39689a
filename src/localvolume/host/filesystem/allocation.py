"""The blocks that a file really takes: reserve them, find where data lies, copy or overwrite it."""

import ctypes
import errno
import mmap
import os
from collections.abc import Callable, Iterable, Iterator

from localvolume.host.syscalls import failed, write_at

_libc = ctypes.CDLL(None, use_errno=True)
_PIECE = 4 << 20
_ALIGNED = 4096  # what direct I/O needs on every disk
# Written data is synced and dropped from the cache this often, so that overwriting a large file
# does not push everybody else's data out of memory.
_SETTLE = 16 * _PIECE
# linux/falloc.h
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


def allocate(fd: int, start: int, length: int) -> None:
    """Reserve blocks for a range of an open file, and extend the file to the range's end.

    Existing content stays; the rest reads as zeros. Raises OSError: ENOSPC (then a part may be
    reserved, even beyond the end of the file: truncate it), EOPNOTSUPP if the filesystem cannot.
    Unlike ``os.posix_fallocate`` it never writes block by block instead.
    """
    _fallocate(fd, 0, start, length)


def _fallocate(fd: int, mode: int, start: int, length: int) -> None:
    while _libc.fallocate(
        ctypes.c_int(fd), ctypes.c_int(mode), ctypes.c_longlong(start), ctypes.c_longlong(length)
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


def copy_data(fd: int, source: int, told: Callable[[int], None]) -> None:
    """Give an open file the size and the data of another, and nothing else; holes stay holes.

    The other may be open for direct I/O, and is a multiple of 4096 bytes long. `told` gets each
    piece's size in bytes, and what it raises ends it early. Nearly all is synced. Raises OSError.
    """
    os.ftruncate(fd, 0)
    os.ftruncate(fd, os.fstat(source).st_size)
    unsettled = 0
    with mmap.mmap(-1, _PIECE) as buffer, memoryview(buffer) as piece:
        for start, end in data_ranges(source):
            start -= start % _ALIGNED
            while start < end:
                length = min(_PIECE, end - start + -(end - start) % _ALIGNED)
                length = os.preadv(source, [piece[:length]], start)
                if not length:
                    raise OSError(errno.EIO, "it became shorter while it was copied")
                write_at(fd, piece[:length], start)
                start += length
                unsettled += length
                if unsettled >= _SETTLE:
                    _settle(fd, ())
                    unsettled = 0
                told(length)


def overwrite(fd: int, told: Callable[[int], None], *, free: bool = False) -> None:
    """Write zeros over all data of an open file, and sync; `told` gets each piece's size in bytes.

    With `free`, the file gives back what is overwritten as it goes: zeros over blocks that it
    shares with other files take new ones. What `told` raises ends it early. Raises OSError.
    """
    zeros = bytes(_PIECE)
    unsettled: list[tuple[int, int]] = []
    count = 0
    # One after the other: whoever wrote the file chose how many there are. No write reaches into
    # what is still to be looked at.
    for start, end in data_ranges(fd):
        while start < end:
            written = os.pwrite(fd, zeros[: end - start], start)
            if free:
                unsettled.append((start, written))
            start += written
            count += written
            if count >= _SETTLE:
                _settle(fd, unsettled)
                unsettled, count = [], 0
            told(written)
    _settle(fd, unsettled)


def _settle(fd: int, freed: Iterable[tuple[int, int]]) -> None:
    os.fdatasync(fd)
    for start, length in freed:
        _fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, start, length)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
