"""Copy an image in full, where its filesystem cannot share blocks, as it is at one moment.

Nothing may write to it until all of it is copied:

- Nobody writes to a snapshot.
- A volume that nobody uses is held, and nobody can begin to use it.
- A filesystem in use is frozen. Its users wait meanwhile, for STALL_SECONDS at most: a copy that
  would take longer, as a piece of it shows, or does, is dropped.
- A Block volume in use is refused: nothing can hold back those who write to it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from localvolume.backends.image.attaching import Attachments
from localvolume.backends.image.filesystem import Content, content_of
from localvolume.backends.image.store import IMAGES_PLACE, image_name, the_volume
from localvolume.backends.model import BackendFailed, Busy, Record
from localvolume.backends.still import is_published, written_out
from localvolume.host.block.blockdev import InUse, exclusive_open, set_direct
from localvolume.host.filesystem.allocation import copy_data, data_ranges
from localvolume.host.filesystem.freezing import (
    NOTES,
    AlreadyFrozen,
    FreezeFailed,
    TookTooLong,
    frozen,
)
from localvolume.host.loop.attach import Loop
from localvolume.host.syscalls import closed_after

STALL_SECONDS: Final = 30.0
"""For how long a copy may hold up those who write to its origin."""

_SAMPLE: Final = 64 << 20
"""Bytes whose copying tells how fast the disk is."""
_AGAIN_SECONDS: Final = 3600.0
"""After a copy was dropped because it took too long, its origin is not frozen for so long."""
_HELP: Final = "End the pods that use it and try again, or use a pool whose files can share blocks"


class _Stop(Exception):
    """Enough is copied, or the time is over."""


@dataclass(eq=False)
class FullCopies:
    """Copies images in full; remembers what took too long.

    `stall` is for how long users may be held up, in seconds, and `notes` where what is frozen is
    noted.
    """

    at: Attachments
    stall: float = STALL_SECONDS
    notes: str = NOTES
    _dropped: dict[str, float] = field(default_factory=dict)
    """When a copy of a volume was dropped, by the volume's name."""

    def fill(self, pool: int, fd: int, origin: Record) -> int:
        """Give the new, open image the content of another; returns when that was, in nanoseconds.

        Raises Busy, BackendFailed and OSError.
        """
        if origin.snapshot_of:
            with the_volume(pool, IMAGES_PLACE, image_name(origin), origin) as source:
                return _copied(fd, source)
        content = content_of(origin)
        with self.at.attached(pool, origin) as (source, loop):
            if content == "raw" and is_published(loop.node):
                raise Busy(_why_not_block(origin))
            try:
                device = exclusive_open(loop.node, write=False, device=loop.device)
            except InUse as error:
                if content == "raw":
                    raise Busy(_why_not_block(origin)) from error
                return self._copied_frozen(fd, source, origin, loop, content)
            with closed_after(device):
                os.fsync(device)
                return _copied(fd, source)

    def _copied_frozen(
        self, fd: int, source: int, origin: Record, loop: Loop, content: Content
    ) -> int:
        dropped = self._dropped.get(origin.name)
        if dropped is not None and time.monotonic() - dropped < _AGAIN_SECONDS:
            raise Busy(
                f"copying {origin.name} held up its users for {self.stall:g} s and was not done: it"
                f" is not tried again within an hour while it is in use. {_HELP}"
            )
        with written_out(loop.node, content) as root:
            self._check_time(fd, source, origin)
            try:
                with frozen([root], seconds=self.stall, notes=self.notes) as deadline:
                    with closed_after(os.open(loop.node, os.O_RDONLY | os.O_CLOEXEC)) as device:
                        os.fsync(device)
                    cut_at = _copied(fd, source, lambda _: _check_deadline(deadline))
            except (TookTooLong, _Stop) as error:
                self._dropped[origin.name] = time.monotonic()
                raise Busy(
                    f"copying {origin.name} held up its users for {self.stall:g} s and was not"
                    f" done: the copy was dropped. {_HELP}"
                ) from error
            except AlreadyFrozen as error:
                raise Busy(str(error)) from error
            except FreezeFailed as error:
                raise BackendFailed(f"{origin.name} cannot be frozen: {error}") from error
        self._dropped.pop(origin.name, None)
        return cut_at

    def _check_time(self, fd: int, source: int, origin: Record) -> None:
        """Raise Busy if copying would take too long; what is copied for that is no cut."""
        with _direct(source) as reading:
            most = sum(end - start for start, end in data_ranges(reading))
            if most <= _SAMPLE:
                return
            copied = 0

            def told(count: int) -> None:
                nonlocal copied
                copied += count
                if copied >= _SAMPLE:
                    raise _Stop

            began = time.monotonic()
            try:
                copy_data(fd, reading, told)
            except _Stop:
                os.fdatasync(fd)
            seconds = (time.monotonic() - began) * most / max(copied, 1)
        if seconds > self.stall:
            raise Busy(
                f"copying {most >> 20} MiB of {origin.name} would hold up its users for about"
                f" {seconds:.0f} s, and at most {self.stall:g} s are allowed. {_HELP}"
            )


def _check_deadline(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise _Stop


def _copied(fd: int, source: int, told: Callable[[int], None] = lambda _: None) -> int:
    # All that was on disk by then is in it, and nothing is written from then on.
    cut_at = time.time_ns()
    with _direct(source) as reading:
        copy_data(fd, reading, told)
    return cut_at


@contextmanager
def _direct(source: int) -> Iterator[int]:
    """Open the image once more, past the page cache: what was read before counts for nothing."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    with closed_after(os.open(f"/proc/self/fd/{source}", flags)) as reading:
        set_direct(reading, True)
        yield reading


def _why_not_block(origin: Record) -> str:
    return (
        f"{origin.name} is a Block volume in use: nothing can hold back those who write to it while"
        f" it is copied. {_HELP}"
    )
