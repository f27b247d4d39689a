"""A note on the device itself that its cleaning was begun: gone only when the cleaning is complete.

A cleaning may end between any two steps, by a crash or a power cut, with the filesystem's signature
erased and a tenant's data behind it untouched: whoever then looks for a signature would take the
device for blank. So every cleaning by us first writes a signature of its own over the first page,
does and proves everything else, and erases that page last: whatever ends it before, the signature
is there, and whatever ends it then, there was nothing but the signature left.

It has the form of a swap area (mkswap(8), linux/swap.h) with a telling label, because every tool
that looks at disks recognises one, and nothing uses it unasked.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Final

from localvolume.cleaning.steps import Steps
from localvolume.host.block.blockdev import flush_buffers, set_direct

LABEL: Final = "lv-cleaning"

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


def note_bytes(size_bytes: int) -> int:
    """How much of a device's beginning is the note's; none of one that has no room beside it."""
    return _PAGE if size_bytes > _PAGE else 0


async def mark_unfinished(steps: Steps) -> None:
    """Write the note, and see it on the disk before anything else is erased.

    OSError comes through; CleaningFailed where the disk does not keep it: the tenant's page would
    be there when all else is gone, and say nothing.
    """
    if note_bytes(steps.held.size_bytes) and not await steps.do(_write, steps.held.fd):
        raise steps.failed("the device does not keep what is written to its first page")


def _write(fd: int) -> bool:
    """Write the note; whether the disk itself has it then."""
    note = header()
    os.pwrite(fd, note, 0)
    os.fsync(fd)
    flush_buffers(fd)
    set_direct(fd, True)  # else the cache has just been dropped
    try:
        with mmap.mmap(-1, _PAGE) as memory:  # page-aligned, as direct reads want it
            return os.preadv(fd, [memory], 0) == _PAGE and memory[:] == note
    finally:
        set_direct(fd, False)
