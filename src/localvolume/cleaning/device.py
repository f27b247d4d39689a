"""Emptying a whole block device: discard it, write zeros over it, or random data and then zeros.

Each works step by step through the descriptor that holds the device exclusively, and reads samples
back at the end: what does not read as zeros is not clean, whatever the disk answered. The note that
the cleaning is unfinished (unfinished.py) is erased once all else is proved.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import random
from typing import Final

from localvolume.cleaning import proof
from localvolume.cleaning.priority import at_idle
from localvolume.cleaning.receipt import CleaningFailed, Result
from localvolume.cleaning.steps import MIB, OnRange, Pace, Steps
from localvolume.cleaning.unfinished import mark_unfinished, note_bytes

# The buffer that written data is taken from, a different stretch for each write.
_POOL_BYTES: Final = 8 * MIB
_WRITE_BYTES: Final = 4 * MIB
_ALIGNMENT: Final = 4096
# The device or its driver has no such operation; then another way is taken.
_NOT_OFFERED: Final = frozenset(
    {errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS, errno.EREMOTEIO}
)
# The disk's own cache may hold gigabytes.
_FLUSH_SECONDS: Final = 600.0
_BLKRRPART: Final = 0x125F  # linux/fs.h: read the partition table again
# A disk may ignore a discard for some stretches; more samples are likelier to show that.
_SAMPLES_AFTER_DISCARD: Final = 4 * proof.SAMPLES

Outcome = tuple[Result, int, str]
"""What goes on the receipt: the result, how many samples were read, and details."""


async def discard(steps: Steps) -> Outcome:
    """Tell the disk to forget everything; if it does not read as zeros then, write them."""
    size = steps.held.size_bytes
    note = note_bytes(size)
    steps.total_bytes = size
    steps.name = "discarding"
    steps.touched = True
    await mark_unfinished(steps)
    try:
        limits = await steps.do(steps.calls.discard_limits, steps.held.fd)
        unit = max(limits.granularity, _ALIGNMENT)
        begin, end = whole_granules(note, size, unit, limits.first)
        # A discard is quick: take larger steps than for writing, at full speed, as upstream does.
        pace = Pace(1024 * MIB, least=64 * MIB, most=1024 * 1024 * MIB)
        steps.done_bytes += begin
        # Two steps that meet within a granule would leave it: the disk forgets only whole ones.
        await steps.sweep_range(pace, steps.calls.discard, begin, end, unit=unit)
        await steps.do(os.fsync, steps.held.fd, seconds=_FLUSH_SECONDS)
    except OSError as error:
        if error.errno not in _NOT_OFFERED and not isinstance(error, FileNotFoundError):
            raise
        # The latter means that sysfs does not give the granularity.
        why = "the device cannot discard"
    else:
        # Both ends are no whole granules, so zeros are written there; the note is in the first.
        await zero_regions(steps, [*_pieces(note, begin), *_pieces(end, size)])
        steps.done_bytes = size
        steps.name = "reading back"
        found = await proof.read_back(steps, count=_SAMPLES_AFTER_DISCARD, begin=note)
        if found.dirty is None:
            await finish(steps)
            return "proved", found.samples, ""
        why = f"discarding left data at byte {found.dirty}"
    result, samples, detail = await zero(steps, passes=1)
    return result, samples, f"{why}, so zeros were written{detail and '; ' + detail}"


def whole_granules(begin: int, size: int, granularity: int, first: int) -> tuple[int, int]:
    """The part of a device from byte `begin` on that consists of whole granules: (start, end).

    Granules begin at byte `first` and every `granularity` bytes after it. If there is no whole one,
    both are `size`.
    """
    start = first + max(0, -(-(begin - first) // granularity)) * granularity
    if start + granularity > size:
        return size, size
    return start, start + (size - start) // granularity * granularity


def _pieces(begin: int, end: int) -> list[proof.Region]:
    """A stretch in pieces, each so small that a slow disk zeroes it within a step's deadline."""
    most = 64 * MIB
    return [proof.Region(at, min(most, end - at)) for at in range(begin, end, most)]


async def zero(steps: Steps, passes: int) -> Outcome:
    """Write zeros over everything, by the kernel (which may let the disk do it itself)."""
    steps.total_bytes = steps.done_bytes + passes * steps.held.size_bytes
    steps.touched = True
    detail = ""
    for number in range(1, passes + 1):
        steps.name = "writing zeros" if passes == 1 else f"writing zeros, pass {number} of {passes}"
        await mark_unfinished(steps)  # each time: its page is then overwritten as often as the rest
        detail = await _zero_once(steps) or detail
    samples = await _prove(steps)
    return "proved", samples, detail


async def overwrite(steps: Steps, passes: int) -> Outcome:
    """Write random data over everything `passes` times, and zeros at the end."""
    steps.total_bytes = (passes + 1) * steps.held.size_bytes
    steps.touched = True
    for number in range(1, passes + 1):
        steps.name = f"writing random data, pass {number} of {passes}"
        await mark_unfinished(steps)
        with Writer(steps, os.urandom(_POOL_BYTES)) as writer:
            begin = note_bytes(steps.held.size_bytes)
            await steps.sweep(Pace(16 * MIB), writer.write, begin=begin)
        await steps.do(os.fsync, steps.held.fd, seconds=_FLUSH_SECONDS)
    steps.name = "writing zeros"
    detail = await _zero_once(steps)
    return "proved", await _prove(steps), detail


class Writer:
    """Writes the content of a pool to a device, from a different place in the pool each time.

    Bypasses the page cache if the device allows it. Otherwise flushes each step, so that a slow
    disk never has more than one step in memory.
    """

    def __init__(self, steps: Steps, pool: bytes) -> None:
        self._held = steps.held
        self._set_direct = steps.calls.set_direct
        self._size = len(pool)
        self._memory = mmap.mmap(-1, self._size)  # page-aligned, as direct writes want it
        self._memory.write(pool)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        # A write left behind in a hanging call still reads the pool: it is freed with that thread.
        try:
            self._memory.close()
        except BufferError:
            return

    def write(self, fd: int, start: int, length: int) -> None:
        """Write one step; blocking."""
        at_idle(self._write, fd, start, length)

    def _write(self, fd: int, start: int, length: int) -> None:
        direct = self._set_direct(fd, True)
        try:
            with memoryview(self._memory) as pool:
                end = start + length
                while start < end and not self._held.closing:
                    count = min(_WRITE_BYTES, end - start)
                    places = (self._size - count) // _ALIGNMENT + 1
                    offset = random.randrange(places) * _ALIGNMENT  # noqa: S311 - only to vary it
                    written = os.pwrite(fd, pool[offset : offset + count], start)
                    if written <= 0:
                        raise OSError(errno.ENOSPC, "the device ends before its size")
                    start += written
        finally:
            self._set_direct(fd, False)
        if not direct:
            os.fsync(fd)


async def zero_regions(steps: Steps, regions: list[proof.Region]) -> None:
    """Write zeros over these stretches only."""
    for region in regions:
        try:
            await steps.do(_zero_out(steps), steps.held.fd, region.start, region.length)
        except OSError as error:
            if error.errno not in _NOT_OFFERED:
                raise
            with Writer(steps, bytes(_POOL_BYTES)) as writer:
                await steps.do(writer.write, steps.held.fd, region.start, region.length)
    await steps.do(os.fsync, steps.held.fd, seconds=_FLUSH_SECONDS)


async def _zero_once(steps: Steps) -> str:
    detail = ""
    before, begin = steps.done_bytes, note_bytes(steps.held.size_bytes)
    try:
        await steps.sweep(Pace(), _zero_out(steps), begin=begin)
    except OSError as error:
        if error.errno not in _NOT_OFFERED:
            raise
        steps.done_bytes = before
        detail = "written by plain writes, the kernel offers no zeroing here"
        with Writer(steps, bytes(_POOL_BYTES)) as writer:
            await steps.sweep(Pace(16 * MIB), writer.write, begin=begin)
    await steps.do(os.fsync, steps.held.fd, seconds=_FLUSH_SECONDS)
    return detail


async def _prove(steps: Steps) -> int:
    """Read samples back; returns how many. Raises CleaningFailed if they are not all zeros."""
    steps.name = "reading back"
    found = await proof.read_back(steps, begin=note_bytes(steps.held.size_bytes))
    if found.dirty is not None:
        raise not_zero(steps, found.dirty)
    await finish(steps)
    return found.samples


async def finish(steps: Steps) -> None:
    """Erase the note when all else is proved, and prove that too.

    The note's page held nothing else, as the disk itself said (mark_unfinished). So the cleaning
    may end anywhere in here. If the disk now returns something else, the note is written again.
    """
    note = proof.Region(0, note_bytes(steps.held.size_bytes))
    if note.length:
        steps.name = "erasing the note that it is unfinished"
        await zero_regions(steps, [note])
        found = await proof.read_regions(steps, [note])
        if found.dirty is not None:
            with contextlib.suppress(OSError, CleaningFailed):
                await mark_unfinished(steps)
            raise not_zero(steps, found.dirty)
    await forget_partitions(steps)


def not_zero(steps: Steps, where: int) -> CleaningFailed:
    """The error for a disk that said it wrote zeros and now returns something else."""
    return steps.failed(f"byte {where} and on does not read as the zeros written there")


def _zero_out(steps: Steps) -> OnRange:
    def call(fd: int, start: int, length: int) -> None:
        at_idle(steps.calls.zero_out, fd, start, length)

    return call


async def forget_partitions(steps: Steps) -> None:
    """Let the kernel see that no partition table is left. Not all devices can have partitions."""
    try:
        await steps.do(_reread_partitions, steps.held.fd)
    except OSError as error:
        if error.errno not in _NOT_OFFERED and error.errno != errno.EBUSY:
            raise


def _reread_partitions(fd: int) -> None:
    fcntl.ioctl(fd, _BLKRRPART)
