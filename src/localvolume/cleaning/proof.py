"""Reads back, past every cache of ours, whether what a method claims to have removed is gone."""

from __future__ import annotations

import errno
import mmap
import os
import random
from collections.abc import Callable
from typing import Final, NamedTuple

from localvolume.cleaning.steps import MIB, DeviceCalls, Steps

# Superblocks, partition tables and their backups live here.
EDGE_BYTES: Final = MIB
SAMPLE_BYTES: Final = 64 << 10
SAMPLES: Final = 64
# A multiple of every sector size in use: direct reads must begin and end on sectors.
_ALIGNMENT: Final = 4096
_ZEROS: Final = bytes(EDGE_BYTES)
# How many regions one call of a worker reads: so few that a slow disk misses no deadline.
_PER_CALL: Final = 8


class Region(NamedTuple):
    """A stretch of a device, in bytes."""

    start: int
    length: int


class Proof(NamedTuple):
    """How many regions were read; `dirty` is the start of the first that was not zero."""

    samples: int
    dirty: int | None


def edges(size_bytes: int) -> list[Region]:
    """The first and the last MiB; one region if they meet."""
    if size_bytes <= 2 * EDGE_BYTES:
        return [Region(0, size_bytes)] if size_bytes > 0 else []
    last = (size_bytes - EDGE_BYTES) // _ALIGNMENT * _ALIGNMENT
    return [Region(0, EDGE_BYTES), Region(last, size_bytes - last)]


def choose_samples(size_bytes: int, count: int, chance: random.Random) -> list[Region]:
    """Where to look: both edges, and `count` places that nobody can foresee.

    The space between the edges is cut into `count` equal parts with one place in each, so that no
    large stretch goes unseen. A device so small that the samples would cover it is read whole.
    """
    if size_bytes <= 2 * EDGE_BYTES + count * SAMPLE_BYTES:
        return [
            Region(start, min(EDGE_BYTES, size_bytes - start))
            for start in range(0, size_bytes, EDGE_BYTES)
        ]
    first, last = edges(size_bytes)
    begin, end = first.start + first.length, last.start
    overlap = SAMPLE_BYTES - _ALIGNMENT
    regions = [first]
    for part in range(count):
        low = begin + (end - begin) * part // count
        high = begin + (end - begin) * (part + 1) // count
        # A sample may begin before its part, so that the part's first blocks are as likely read.
        start = low - overlap + chance.randrange(high - low + overlap)
        start = max(begin, start // _ALIGNMENT * _ALIGNMENT)
        regions.append(Region(start, min(SAMPLE_BYTES, end - start)))
    return [*sorted(regions), last]


def behind(regions: list[Region], begin: int) -> list[Region]:
    """The parts of these regions that lie at byte `begin` or after it."""
    return [
        Region(max(start, begin), start + length - max(start, begin))
        for start, length in regions
        if start + length > begin
    ]


async def read_back(steps: Steps, *, count: int = SAMPLES, begin: int = 0) -> Proof:
    """Read samples of the held block device from byte `begin` on.

    OSError comes through: what cannot be read is not proved.
    """
    regions = choose_samples(steps.held.size_bytes, count, random.SystemRandom())
    return await read_regions(steps, behind(regions, begin))


async def read_regions(steps: Steps, regions: list[Region]) -> Proof:
    """Read these regions from the device itself, until one is found that is not zero."""
    fd = steps.held.fd
    await steps.do(steps.calls.flush_buffers, fd)
    for begin in range(0, len(regions), _PER_CALL):
        some = regions[begin : begin + _PER_CALL]
        dirty = await steps.do(_first_dirty, steps.calls, fd, some, lambda: steps.held.closing)
        if dirty is not None:
            return Proof(begin + len(some), dirty)
    return Proof(len(regions), None)


def _first_dirty(
    calls: DeviceCalls, fd: int, regions: list[Region], given_up: Callable[[], bool]
) -> int | None:
    """The start of the first region that is not all zeros; blocking."""
    calls.set_direct(fd, True)  # if refused: the caller has just flushed the cache
    try:
        with mmap.mmap(-1, 2 * EDGE_BYTES) as memory:  # page-aligned, as direct reads want it
            for region in regions:
                if given_up():
                    return None
                if not _is_zero(fd, region, memory):
                    return region.start
    finally:
        calls.set_direct(fd, False)
    return None


def _is_zero(fd: int, region: Region, memory: mmap.mmap) -> bool:
    done = 0
    while done < region.length:
        with memoryview(memory)[: min(EDGE_BYTES, region.length - done)] as part:
            read = os.preadv(fd, [part], region.start + done)
            if read <= 0:
                raise OSError(errno.EIO, f"ends at {region.start + done}, before its size")
            if bytes(part[:read]) != _ZEROS[:read]:
                return False
        done += read
    return True
