"""A note on the device itself that its cleaning was begun: gone only when the cleaning is complete.

A cleaning may end between any two steps, by a crash or a power cut, with the filesystem's signature
erased and a tenant's data behind it untouched: whoever then looks for a signature would take the
device for blank. So every cleaning that erases content first writes a signature of its own, works
from behind it to the end, and erases it last.

It has the form of a swap area (mkswap(8), linux/swap.h) with a telling label, because every tool
that looks at disks recognises one, and nothing uses it unasked.
"""

from __future__ import annotations

import os
import struct
from typing import Final

from localvolume.cleaning.steps import MIB, Steps

LABEL: Final = "lv-cleaning"
HEAD_BYTES: Final = MIB
"""The part of a device that is erased last."""

_PAGE: Final = 4096
_HEADER_AT: Final = 1024
_MAGIC: Final = b"SWAPSPACE2"


def header() -> bytes:
    """One page that reads as an empty swap area of that label; its UUID is random."""
    page = bytearray(_PAGE)
    # version, last page, bad pages, UUID, label
    struct.pack_into("<III16s16s", page, _HEADER_AT, 1, 9, 0, os.urandom(16), LABEL.encode())
    page[_PAGE - len(_MAGIC) :] = _MAGIC
    return bytes(page)


async def mark_unfinished(steps: Steps) -> None:
    """Write the note, and have it on the disk before anything else is erased."""
    if steps.held.size_bytes > HEAD_BYTES:
        await steps.do(_write, steps.held.fd)


def _write(fd: int) -> None:
    os.pwrite(fd, header(), 0)
    os.fsync(fd)
