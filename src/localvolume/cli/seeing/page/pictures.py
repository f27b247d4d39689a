"""The latest picture of the cluster, one for all viewers, and how old it is.

The cluster is read when somebody looks and the last reading is old enough. If it cannot be read,
the picture before stays, and says since when it is old.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.page.explaining import explained
from localvolume.cli.seeing.page.model import page_data, shown
from localvolume.cli.seeing.status.overview import overview
from localvolume.kube.errors import ApiError

_READING_SECONDS: Final = 60.0

Read = Callable[[], Awaitable[Facts]]
Deepen = Callable[[Facts, str], Awaitable[Facts]]


@dataclass(slots=True)
class Picture:
    """`number` is another one whenever something changed but the time; `read_at` is monotonic."""

    number: int = 0
    facts: Facts | None = None
    data: dict[str, Any] | None = None
    text: str = ""
    read_at: float = 0.0
    error: str = ""

    def answer(self, have: str) -> dict[str, Any]:
        """For a viewer that has the picture of the number `have`."""
        known = self.data is not None and have == str(self.number)
        return {
            "number": self.number,
            "age": 0.0 if self.data is None else time.monotonic() - self.read_at,
            "time": None if self.data is None else self.data["time"],
            "error": self.error,
            "data": None if known else self.data,
        }


@dataclass
class Pictures:
    """`read` reads the cluster; `deepen` adds what explaining a claim needs of its namespace."""

    read: Read
    deepen: Deepen
    every: float
    node: str = ""
    _picture: Picture = field(default_factory=Picture)
    _tried_at: float | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def current(self) -> Picture:
        """The latest, read now if the last attempt is as old as `every` seconds."""
        async with self._lock:
            now = time.monotonic()
            if self._tried_at is None or now - self._tried_at >= self.every:
                await self._look(now)
                self._tried_at = time.monotonic()
        return self._picture

    async def explained(self, about: str) -> dict[str, Any] | None:
        """What `localvolume why` says, by the facts of the picture that the viewer sees."""
        facts = self._picture.facts
        if facts is None:
            return None
        kind, _, name = about.partition("/")
        if kind == "pvc" and name in (facts.claims or {}):
            facts = await self.deepen(facts, name.partition("/")[0])
        why = explained(facts, about)
        found: dict[str, Any] | None = shown(why)
        return found

    async def _look(self, now: float) -> None:
        picture = self._picture
        try:
            async with asyncio.timeout(_READING_SECONDS):
                facts = await self.read()
        except TimeoutError:
            picture.error = f"The API server has not answered within {_READING_SECONDS:.0f} s."
            return
        except ApiError as error:
            picture.error = shown(f"The API server could not be asked: {error}")
            return
        # Ten thousand volumes take a second, in which other viewers must not wait.
        data, text = await asyncio.to_thread(_drawn, facts, self.node)
        picture.number += text != picture.text
        picture.facts, picture.data, picture.text = facts, data, text
        picture.read_at, picture.error = now, ""


def _drawn(facts: Facts, node: str) -> tuple[dict[str, Any], str]:
    """The data, and the same without its time as text, by which a change is noticed."""
    data = page_data(overview(facts, node), {})
    return data, json.dumps({**data, "time": ""})
