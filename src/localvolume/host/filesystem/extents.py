"""Where the bytes of a file lie in its filesystem (FIEMAP): what is shared, and what is zeros.

Two files of one filesystem that have a byte at one address have the same byte. Other addresses say
nothing: the content may be equal all the same.
"""

import fcntl
import itertools
import os
import struct
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from localvolume.host.syscalls import ioc

# linux/fiemap.h: struct fiemap, 32 bytes, and after it the extents, 56 bytes each.
_FIEMAP: Final = ioc(3, ord("f"), 11, 32)
_HEAD, _EXTENT = struct.Struct("=QQIIII"), struct.Struct("=QQQ16xI12x")
_SYNC: Final = 1
_LAST, _UNWRITTEN, _MERGED, _SHARED = 0x1, 0x800, 0x1000, 0x2000
AT_ONCE: Final = 1000
"""How many extents one call of the kernel's tells."""


class Extent(NamedTuple):
    """A part of a file that has blocks; `about` is what the kernel says of it."""

    start: int
    address: int
    length: int
    about: int

    @property
    def is_last(self) -> bool:
        return bool(self.about & _LAST)

    @property
    def is_shared(self) -> bool:
        """Whether other files may have the same blocks."""
        return bool(self.about & _SHARED)


def extents(fd: int, start: int, *, most: int = AT_ONCE, sync: bool = True) -> list[Extent]:
    """The extents of an open file that end after `start`, in order, and at most so many.

    `sync`: what was written is given its blocks first. Raises OSError: EOPNOTSUPP and the like if
    the filesystem does not tell.
    """
    buffer = bytearray(_HEAD.size + most * _EXTENT.size)
    _HEAD.pack_into(buffer, 0, start, (1 << 64) - 1 - start, _SYNC if sync else 0, 0, most, 0)
    fcntl.ioctl(fd, _FIEMAP, buffer)
    found = _HEAD.unpack_from(buffer)[3]
    places = range(_HEAD.size, _HEAD.size + found * _EXTENT.size, _EXTENT.size)
    return [Extent(*_EXTENT.unpack_from(buffer, at)) for at in places]


class Piece(NamedTuple):
    """The bytes of a file from `start` to before `end`.

    `place` is their address less their offset in the file, so it is the same for all of a piece;
    `zeros` if nothing was ever written there, and `unknown` if nobody can tell where they lie.
    """

    start: int
    end: int
    place: int | Literal["zeros", "unknown"]


def pieces(fd: int, start: int, end: int, *, most: int = AT_ONCE) -> list[Piece]:
    """An open file from `start` on, without gaps, at most up to `end`, which is after `start`.

    They may end earlier, as at most so many extents are looked at, but never at `start` already.
    What is beyond the end of the file is `unknown`. Raises OSError, as ``extents``.
    """
    size = os.fstat(fd).st_size
    found = extents(fd, start, most=most) if start < size else []
    return tiled(found, start, end, size, complete=len(found) < most)


def tiled(
    found: Sequence[Extent], start: int, end: int, size: int, *, complete: bool
) -> list[Piece]:
    """The pieces that these extents make of a file of `size` bytes; `complete`: there are no more.

    If extents overlap, which no filesystem should say, nobody can tell anything.
    """
    if any(later.start < one.start + one.length for one, later in itertools.pairwise(found)):
        return [Piece(start, end, "unknown")]
    made: list[Piece] = []
    at = start

    def told(until: int, place: int | Literal["zeros", "unknown"]) -> None:
        nonlocal at
        if until > at:
            made.append(Piece(at, until, place))
            at = until

    last = min(end, size)
    for one in found:
        told(min(one.start, last), "zeros")
        told(min(one.start + one.length, last), _place(one))
    if complete or (found and found[-1].is_last):
        told(last, "zeros")
        told(end, "unknown")
    return made


def _place(one: Extent) -> int | Literal["zeros", "unknown"]:
    if one.about & ~(_LAST | _UNWRITTEN | _SHARED | _MERGED):
        # Not written out yet, compressed, encrypted, beside metadata, or a kind that is not known.
        return "unknown"
    return "zeros" if one.about & _UNWRITTEN else one.address - one.start
