"""How much of each image other files have, too, as far as a look has time to count that.

A tenant decides in how many pieces an image lies, and counting takes time for each. So a look
counts for a while only, and the next one goes on with those that were counted longest ago. Until an
image is counted, all of it counts as shared. What it shares becomes less by itself, as it is
written to, and more by cuts alone.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from localvolume.backends.model import Record
from localvolume.host.filesystem import reflink

SECONDS: Final = 2.0
"""How long one look counts; it may take ten seconds for all that it does."""


class _Counted(NamedTuple):
    when: float
    shared: int


@dataclass(eq=False)
class Sharing:
    """Remembers what was counted, by the pool's filesystem and the image's inode. Threads may use
    it."""

    seconds: float = SECONDS
    _counted: dict[tuple[int, int], _Counted] = field(default_factory=dict)
    _cuts: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self, pool: int) -> Look:
        """Begin to look at the images of an open pool."""
        return Look(self, os.fstat(pool).st_dev, self.seconds)

    def cut(self, pool: int, *inodes: int) -> None:
        """Forget what these images shared: one was cut of another, or goes. Tell it afterwards."""
        device = os.fstat(pool).st_dev
        with self._lock:
            self._cuts += 1
            for inode in inodes:
                self._counted.pop((device, inode), None)

    def counted(self, device: int, inode: int) -> _Counted | None:
        """What was counted last."""
        return self._counted.get((device, inode))

    def count(self, device: int, inode: int, fd: int) -> int:
        """Count it now. Raises OSError."""
        cuts, shared = self._cuts, reflink.shared_bytes(fd)
        with self._lock:
            if cuts == self._cuts:
                self._counted[device, inode] = _Counted(time.monotonic(), shared)
        return shared


@dataclass(eq=False)
class Look:
    """One look, with the seconds that are left for counting."""

    sharing: Sharing
    device: int
    left: float

    def in_turn(self, records: Iterable[Record]) -> list[Record]:
        """The records in the order in which their images are to be counted."""

        def when(record: Record) -> float:
            found = self.sharing.counted(self.device, record.inode)
            return found.when if found is not None else 0.0

        return sorted(records, key=when)

    def shared_bytes(self, fd: int) -> int:
        """How many bytes of an open image's blocks other files may have. Raises OSError."""
        image = os.fstat(fd)
        if self.left <= 0:
            taken = image.st_blocks * 512
            found = self.sharing.counted(self.device, image.st_ino)
            return taken if found is None else min(taken, found.shared)
        began = time.monotonic()
        shared = self.sharing.count(self.device, image.st_ino, fd)
        self.left -= time.monotonic() - began
        return shared
