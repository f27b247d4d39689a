"""Entries that no PersistentVolume offers, each read by a task of its own.

Only its own task waits for a dead or slow disk: the look that found it goes on, and another look
is asked for once the reading has ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from localvolume.host.mount.mounts import Mount
from localvolume.static.facts.known import Changes, Known
from localvolume.static.model import Entry

MOST = 64
"""How many entries are read at the same time at most, including those that do not answer."""

Key = tuple[str, str]
"""An entry's class and name."""


@dataclass(slots=True)
class _Reading:
    path: str
    mount: Mount | None
    task: asyncio.Task[Known]
    changes: Changes = field(default_factory=lambda: Changes(host=False))
    """What has happened since the task began: what it finds may be older."""


class Readings:
    """At most one reading for each entry, and what the readings have found.

    `patience` is how long, in seconds, a look waits for a reading (None: until it ends); `ended` is
    called when one ends that was not waited for.
    """

    def __init__(
        self,
        read: Callable[[Entry, Mount | None], Awaitable[Entry]],
        *,
        patience: float | None,
        ended: Callable[[], object],
    ) -> None:
        self._read = read
        self._patience = patience
        self._ended = ended
        self._under_way: dict[Key, _Reading] = {}
        """Includes those that have ended, until they are taken."""
        self._unanswered = 0

    async def wait_for(self, entry: Entry, mount: Mount | None) -> None:
        """Start to read the entry, unless it is being read or too many are; wait a while for it.

        `mount` is what is mounted on its path.
        """
        key = entry.class_name, entry.name
        if (reading := self._under_way.get(key)) is not None:
            if reading.mount != mount:
                reading.changes.everything = True
            return
        if self._unanswered >= MOST:
            return
        task = asyncio.create_task(self._known(entry, mount))
        self._unanswered += 1
        task.add_done_callback(self._answered)
        self._under_way[key] = _Reading(entry.path, mount, task)
        await asyncio.wait({task}, timeout=self._patience)
        if not task.done():
            task.add_done_callback(lambda _: self._ended())

    def changed(self, changes: Changes) -> None:
        """Note what the kernel has reported while readings are under way."""
        for reading in self._under_way.values():
            reading.changes.add(changes)

    def outdate(self, path: str | None = None) -> None:
        """Let nothing count that a reading of the entry at this path (None: of any) will find."""
        for reading in self._under_way.values():
            if path in (None, reading.path):
                reading.changes.everything = True

    def take(self) -> Mapping[Key, Known]:
        """What the readings that have ended found; `outdated` is set if that may not hold."""
        over = {key: one for key, one in self._under_way.items() if one.task.done()}
        found = {}
        for key, reading in over.items():
            del self._under_way[key]
            known = reading.task.result()
            known.outdated = reading.changes.concern(known.entry)
            found[key] = known
        return found

    async def stop(self) -> None:
        """Cancel all readings, and wait until the commands that they run have ended."""
        tasks = [reading.task for reading in self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _answered(self, _: asyncio.Task[Known]) -> None:
        self._unanswered -= 1

    async def _known(self, entry: Entry, mount: Mount | None) -> Known:
        return Known(await self._read(entry, mount), mount, time.monotonic())
