"""Judges what an agenda holds, a short while at a time, and knows how far behind that is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from localvolume.controller.agenda import Agenda

SLICE_SECONDS: Final = 0.02
"""How long judging may keep everything else waiting."""


class Turning:
    """One agenda, judged by one task."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._turned = time.monotonic()

    @property
    def behind(self) -> float:
        """For how many seconds something has waited to be judged, without anything having been."""
        return time.monotonic() - self._turned if len(self._agenda) else 0.0

    async def forever(
        self,
        begin: Callable[[], Callable[[str], object]],
        end: Callable[[], object] = lambda: None,
    ) -> None:
        """Never returns. For each slice of time `begin` gives what judges one name, and `end` is
        called after it."""
        while True:
            self._turned = time.monotonic()
            await self._agenda.wait()
            self._turned = until = time.monotonic()
            until += SLICE_SECONDS
            judge = begin()
            while (name := self._agenda.pop()) is not None:
                judge(name)
                if time.monotonic() >= until:
                    break
            end()
            await asyncio.sleep(0)
