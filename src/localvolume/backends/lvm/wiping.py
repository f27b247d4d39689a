"""Make the content of a whole logical volume unreadable: zero it, or give it back to the disk.

This goes in pieces, with the device claimed, so that nobody mounts it meanwhile. Everything may be
repeated. All raise InUse, NotABlockDevice and OSError.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from typing import Final, Literal

from localvolume.backends.lvm.zeroing import PIECE, Zeroing
from localvolume.host.block import blockdev
from localvolume.host.lvm.commands import LogicalVolume
from localvolume.host.syscalls import closed_after, write_at

_DISCARD_PIECE: Final = 1 << 30
_READ_PIECE: Final = 1 << 20
_THIN_PIECE: Final = 64 << 10
"""The smallest block of a thin pool."""
_ZEROS: Final = bytes(_THIN_PIECE)

How = Literal["overwrite", "discard"]
Proceed = Callable[[int], bool]
"""Whether to go on after that many bytes from the start of the volume; it may also raise."""

log = logging.getLogger(__name__)


def zero_for(node: str, device: str, start: int, zeroing: Zeroing) -> tuple[int, bool]:
    """Zero from `start` on for about as long as `zeroing` says. Returns how far the volume is now
    zeros on disk, and whether that is its end.
    """
    until = time.monotonic() + zeroing.seconds
    with closed_after(blockdev.exclusive_open(node, device=device)) as fd:
        size = blockdev.size_bytes(fd)
        while start < size:
            length = min(zeroing.piece, size - start)
            blockdev.zero_out(fd, start, length)
            start += length
            # Checked last, so that even a call that starts late makes progress.
            if time.monotonic() >= until:
                break
        # Only what is on disk may be recorded as done.
        os.fsync(fd)
        return start, start >= size


def wipe(volume: LogicalVolume, how: How, proceed: Proceed, *, start: int = 0) -> tuple[int, int]:
    """Overwrite with zeros, or discard, what an active volume holds from `start` on, while
    `proceed` says so. Returns how far that is done and on disk, and the volume's size in bytes.

    A thin volume is only written to where it is not zeros: the rest has no blocks, and writing
    would take some of the pool's. A device that takes no discards is left as it is and counts as
    done: discards are advice to it.
    """
    with closed_after(blockdev.exclusive_open(volume.path, device=volume.device)) as fd:
        size = blockdev.size_bytes(fd)
        piece = _DISCARD_PIECE if how == "discard" else PIECE
        while start < size and proceed(start):
            length = min(piece, size - start)
            if not wipe_part(fd, start, length, how, thin=volume.kind == "thin"):
                log.warning("%s takes no discards: it is removed without", volume.path)
                return size, size
            start += length
        # Only what is on disk may be recorded as done.
        os.fsync(fd)
        return start, size


def wipe_part(fd: int, start: int, length: int, how: How, *, thin: bool) -> bool:
    """Overwrite or discard a part; False where the device takes no discards at all."""
    if how == "discard":
        return _discard(fd, start, length)
    if thin:
        _overwrite_thin(fd, start, length)
    else:
        blockdev.zero_out(fd, start, length)
    return True


def _overwrite_thin(fd: int, start: int, length: int) -> None:
    at, end = start, start + length
    while at < end:
        # What ends early before a bad block is read on from there, and fails there.
        found = os.pread(fd, min(_READ_PIECE, end - at), at)
        if not found:
            raise OSError(errno.ENXIO, f"it became shorter than {end} bytes while it was wiped")
        for inner in range(0, len(found), _THIN_PIECE):
            piece = found[inner : inner + _THIN_PIECE]
            # Writing zeros where nothing is would fill the pool with them.
            if piece != _ZEROS[: len(piece)]:
                write_at(fd, _ZEROS[: len(piece)], at + inner)
        at += len(found)
    os.fdatasync(fd)
    # A large volume must not push everybody else's data out of the page cache.
    os.posix_fadvise(fd, start, length, os.POSIX_FADV_DONTNEED)


def _discard(fd: int, start: int, length: int) -> bool:
    try:
        blockdev.discard(fd, start, length)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return False
        raise
    return True
