"""Which objects are to be judged, now or later: each once, however often somebody asks."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

_SLACK_SECONDS: Final = 0.25
"""How much later than asked for is soon enough, so that a name is not queued twice for little."""


class WorkQueue:
    """Names in the order in which they were asked for. Use within one event loop."""

    def __init__(self) -> None:
        self._now: OrderedDict[str, None] = OrderedDict()
        self._later: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self.since = 0.0
        """Since when there has been something to be judged (time.monotonic), if there is."""

    def __len__(self) -> int:
        """How many are to be judged now."""
        return len(self._now)

    def add(self, names: Iterable[str]) -> None:
        """Have these judged as soon as possible."""
        self._now.update(dict.fromkeys(names))
        if self._now and not self._wake.is_set():
            self.since = time.monotonic()
            self._wake.set()

    def later(self, name: str, seconds: float) -> None:
        """Have it judged after `seconds` at the latest; something else may call for it earlier."""
        due = time.monotonic() + seconds
        if self._due.get(name, due + 2 * _SLACK_SECONDS) <= due + _SLACK_SECONDS:
            return
        self._due[name] = due
        heapq.heappush(self._later, (due, name))
        self._set_alarm()

    async def wait(self) -> None:
        """Wait until something is to be judged."""
        await self._wake.wait()

    def pop(self) -> str | None:
        """The next name; None if there is none now."""
        if not self._now:
            self._wake.clear()
            return None
        return self._now.popitem(last=False)[0]

    def close(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self) -> None:
        self.close()
        if self._later:
            seconds = max(0.0, self._later[0][0] - time.monotonic())
            self._alarm = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        now = time.monotonic()
        due = []
        while self._later and self._later[0][0] <= now:
            moment, name = heapq.heappop(self._later)
            if self._due.get(name) == moment:
                del self._due[name]
                due.append(name)
        self.add(due)
        self._set_alarm()
