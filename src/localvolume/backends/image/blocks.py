"""Which bytes of a snapshot are data, and which differ from those of an earlier snapshot.

Nothing is read: both images are on one filesystem, so what lies at one address in both is equal.
All else is named, whether or not it differs: more may be named than has changed, never less.
"""

import os
from collections.abc import Iterator, Sequence

from localvolume.backends.model import BackendFailed, Blocks, Impossible
from localvolume.host.filesystem.extents import Piece, pieces
from localvolume.host.filesystem.inodeflags import read_attributes
from localvolume.host.filesystem.reflink import CANNOT

# linux/fs.h: FS_XFLAG_REALTIME. The addresses of such a file are those of another device.
_REALTIME = 0x1


def blocks(image: int, base: int | None, start: int) -> Blocks:
    """The data of an open image from `start` on; with a `base`, what may differ from that.

    Nobody writes to either. What is beyond the end of the base differs. Raises BackendFailed
    (Impossible if their filesystem does not tell) and OSError.
    """
    size = os.fstat(image).st_size
    if start >= size:
        return Blocks(ranges=(), until=size, total_bytes=size)
    try:
        mine = pieces(image, start, size)
        others = [Piece(start, size, "zeros")] if base is None else _of(base, image, mine)
    except OSError as error:
        if error.errno in CANNOT:
            raise Impossible(
                f"the pool's filesystem does not tell where files lie: {error.strerror}"
            ) from error
        raise
    until = min(mine[-1].end, others[-1].end)
    return Blocks(ranges=list(differing(mine, others)), until=until, total_bytes=size)


def _of(base: int, image: int, mine: Sequence[Piece]) -> list[Piece]:
    """What the base has where `mine` are the pieces of the image."""
    start, end = mine[0].start, mine[-1].end
    if _device(base) != _device(image):
        return [Piece(start, end, "unknown")]
    found = pieces(base, start, end)
    # What moves one file (a defragmentation, a balance) may put it where the other was.
    if pieces(image, start, end) != list(mine):
        raise BackendFailed("its blocks are being moved: ask again")
    return found


def _device(fd: int) -> tuple[int, int]:
    """What the addresses of an open file count from."""
    return os.fstat(fd).st_dev, read_attributes(fd)[0] & _REALTIME


def differing(mine: Sequence[Piece], others: Sequence[Piece]) -> Iterator[tuple[int, int]]:
    """The ranges (start, bytes) of one file in which another may differ, as far as both are known.

    Both begin at the same byte and have no gaps.
    """
    begun: int | None = None
    ended = 0
    left, right = iter(mine), iter(others)
    one, other = next(left, None), next(right, None)
    while one is not None and other is not None:
        at, until = max(one.start, other.start), min(one.end, other.end)
        if one.place != other.place or one.place == "unknown":
            if begun is None:
                begun = at
            ended = until
        elif begun is not None:
            yield begun, ended - begun
            begun = None
        if one.end == until:
            one = next(left, None)
        if other.end == until:
            other = next(right, None)
    if begun is not None:
        yield begun, ended - begun
