"""The loop of a role: woken by events, it looks at everything, acts, rests, and looks again.

Level-triggered: an event only says that it is worth looking. Missed, duplicate or reordered events
change nothing but the time of a look.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final, NoReturn

log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 5.0
"""How soon a failed look is tried again, unless something wakes the role earlier."""


class CannotLook(Exception):
    """Something that a look needs is not known yet; the message says what.

    The next event may bring it; the look is tried again anyway after `again_seconds`, 0: never.
    """

    def __init__(self, message: str, again_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.again_seconds = again_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """How long to rest after a look: `factor` times as long as it took, within bounds in seconds.

    Events gather during the rest, so that a burst of them takes one look. `owing` seconds of rest
    may be put off until nothing calls for a look: what takes two or three looks, each called for by
    what the one before did, then waits for none of them.
    """

    factor: float = 4.0
    shortest: float = 0.0
    longest: float = 1.0
    owing: float = 0.0

    def after(self, took: float) -> float:
        return min(self.longest, max(self.shortest, self.factor * took))


@dataclass(eq=False)
class Loop:
    """One role's loop. `look` returns in how many seconds to look again by itself, 0: not before it
    is woken. `resync` returns, each time, after how many seconds to call `at_resync` and wake the
    role; up to as many again are added at random. A change is looked at after `settle` seconds.

    Whatever `look` raises is kept as `problem`, and the look is tried again: a mistake in one role
    ends no other.
    """

    name: str
    look: Callable[[], Awaitable[float]]
    _: KW_ONLY
    rest: Rest | None = None
    resync: Callable[[], float] = lambda: math.inf
    at_resync: Callable[[], object] = lambda: None
    settle: float = 0.0
    unreadable: tuple[type[Exception], ...] = (OSError,)
    """What `look` raises where the node cannot be looked at, by no mistake of ours."""

    def __post_init__(self) -> None:
        self._rest = self.rest or Rest()
        self._wake = asyncio.Event()
        self._wake.set()
        self._alarm: asyncio.TimerHandle | None = None
        self._owed = 0.0
        """The rest that was put off, in seconds."""
        self.problem = "nothing has been looked at yet"
        """Why the last look failed, "" if it did not."""
        self.looks = 0
        """How many looks were completed."""
        self.looking_since: float | None = None
        """When the look under way began (time.monotonic), None between two looks."""

    def wake(self, *_: object) -> None:
        """Look, as something changed; one look covers all changes before it begins."""
        self._wake.set()

    def wake_in(self, seconds: float) -> None:
        """Wake the role after that time instead of the one set before; 0: not by itself."""
        if self._alarm is not None:
            self._alarm.cancel()
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_later(seconds, self._wake.set) if seconds else None

    def stuck(self, seconds: float) -> bool:
        """Whether the look under way has lasted longer than that."""
        since = self.looking_since
        return since is not None and time.monotonic() - since > seconds

    async def run(self) -> NoReturn:
        """Never returns."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._resync_forever())
                tasks.create_task(self._look_forever())
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
        raise AssertionError("loops do not end")

    async def _resync_forever(self) -> None:
        while True:
            seconds = self.resync()
            if seconds == math.inf:
                return
            await asyncio.sleep(seconds * (1 + random.random()))  # noqa: S311 - jitter, no secret
            self.at_resync()
            self._wake.set()

    async def _look_forever(self) -> None:
        settle, clock = 0.0, asyncio.get_running_loop()
        while True:
            ended = clock.time()
            await self._wake.wait()
            self._owed = max(0.0, self._owed - (clock.time() - ended))
            await asyncio.sleep(settle)
            self._wake.clear()
            settle = self.settle
            began = self.looking_since = time.monotonic()
            try:
                seconds = await self._once()
            finally:
                # Also on cancellation: a loop that does not run is not stuck.
                self.looking_since = None
            self.wake_in(seconds)
            self._owed += self._rest.after(time.monotonic() - began)
            pause = max(0.0, self._owed - self._rest.owing)
            self._owed -= pause
            await asyncio.sleep(pause)

    async def _once(self) -> float:
        try:
            seconds = await self.look()
        except CannotLook as error:
            self._put_off(str(error))
            return error.again_seconds
        except self.unreadable as error:
            self._put_off(f"this node cannot be looked at: {error}", logging.WARNING)
            return AGAIN_SECONDS
        except Exception as error:  # noqa: BLE001 - said, and the look is tried again
            self._put_off(f"a mistake of ours: {error!r}", mistake=error)
            return AGAIN_SECONDS
        self.problem = ""
        self.looks += 1
        return seconds

    def _put_off(
        self, why: str, level: int = logging.ERROR, mistake: Exception | None = None
    ) -> None:
        """Keep the problem, and log it once until it changes."""
        if self.problem != why:
            log.log(level, "%s: %s", self.name, why, exc_info=mistake)
        self.problem = why
