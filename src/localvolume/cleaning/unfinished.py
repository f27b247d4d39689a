"""A note on the device itself that its cleaning was begun: gone only when the cleaning is complete.

A crash or a power cut may end a cleaning between any two steps, with the filesystem's signature
erased and a tenant's data behind it untouched. Anybody who looks for a signature would then take
the device for blank. So each of our cleanings first writes its own signature over the first page,
then does and proves everything else, and erases that page last. If the cleaning ends before that,
the signature is there; if it ends during that, nothing but the signature was left.

The note has the form of a swap area (mkswap(8), linux/swap.h) with a telling label, because every
tool that looks at disks recognises one, and nothing uses it unasked.
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
    """One page that reads as an empty swap area with that label; its UUID is random."""
    page = bytearray(_PAGE)
    # version, last page, bad pages, UUID, label
    struct.pack_into("<III16s16s", page, _HEADER_AT, 1, 9, 0, os.urandom(16), LABEL.encode())
    page[_PAGE - len(_MAGIC) :] = _MAGIC
    return bytes(page)


def note_bytes(size_bytes: int) -> int:
    """How many bytes the note takes at a device's beginning; 0 if nothing else would fit."""
    return _PAGE if size_bytes > _PAGE else 0


async def mark_unfinished(steps: Steps) -> None:
    """Write the note, and check that the disk has it before anything else is erased.

    OSError comes through. Raises CleaningFailed if the disk does not keep the note: then the
    tenant's page would still be there when all else is gone, and nothing would tell.
    """
    if note_bytes(steps.held.size_bytes) and not await steps.do(_write, steps.held.fd):
        raise steps.failed("the device does not keep what is written to its first page")


def _write(fd: int) -> bool:
    """Write the note; returns whether the disk itself has it then."""
    note = header()
    os.pwrite(fd, note, 0)
    os.fsync(fd)
    flush_buffers(fd)
    set_direct(fd, True)  # if refused: the cache has just been flushed
    try:
        with mmap.mmap(-1, _PAGE) as memory:  # page-aligned, as direct reads want it
            return os.preadv(fd, [memory], 0) == _PAGE and memory[:] == note
    finally:
        set_direct(fd, False)
