"""Whether an open device reads as zeros: its edges and samples, for data without a signature.

Not every byte is read: that would take hours. What a tenant wrote is found nevertheless, unless all
of it lies between the samples and none at an edge.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

EDGE: Final = 1 << 20
"""Bytes at each end of a device that are read completely."""

_SAMPLES: Final = 64
_SAMPLE: Final = 1 << 16
_ALIGNMENT: Final = 4096


def first_data(fd: int, size: int, more: Iterable[tuple[int, int]] = ()) -> int | None:
    """The offset of the first byte found that is not zero on a device of `size` bytes, or None.

    `more` are further ranges to read, as (offset, bytes). Raises OSError.
    """
    step = max(size // _SAMPLES, _SAMPLE)
    ranges = [(0, EDGE), (max(0, size - EDGE), EDGE)]
    ranges += [(at // _ALIGNMENT * _ALIGNMENT, _SAMPLE) for at in range(0, size, step)]
    ranges += more
    for start, length in sorted(ranges):
        wanted = min(length, size - start)
        piece = os.pread(fd, wanted, start)
        if len(piece) < wanted:
            raise OSError(5, "the device is shorter than it says")
        if piece != bytes(wanted):
            return start + next(at for at, byte in enumerate(piece) if byte)
    return None
