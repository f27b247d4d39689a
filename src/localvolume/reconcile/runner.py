"""What is under way: at most one action per key, so many at a time, and failures waited out.

In memory and for this process alone: it says when something is tried again, and never whether it is
due.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar

from localvolume.kube.backoff import Backoff
from localvolume.kube.ending import ended

A = TypeVar("A")

STOP_SECONDS: Final = 5.0
"""How long the end of the process waits for actions under way to come to an end."""

_OUTDATED_SECONDS: Final = 0.2
_LONGEST_OUTDATED: Final = 2.0


class Answer(Enum):
    """What became of an action that was offered."""

    BEGUN = auto()
    BUSY = auto()
    """Another one is under way at its key."""
    EARLY = auto()
    """The last of its kind failed, and its time has not come."""
    FULL = auto()
    """As many as may be are under way."""


@dataclass(slots=True)
class Failing:
    """Actions of one kind about one key, from a failure to the next success."""

    backoff: Backoff
    not_before: float = 0.0
    """When the next attempt may begin (time.monotonic)."""
    outdated: int = 0
    """How often in a row what an action relied on was no longer so."""
    note: Any = None
    """What the role remembers of the failure."""

    def again(self, at_least: float | None = None) -> float:
        """Count one more failure; in how many seconds it may be tried again."""
        return self.backoff.next(at_least)

    def overtaken(self) -> float:
        """The same where something had changed: soon, and never in a tight loop, as what is
        watched may come late."""
        wait: float = min(_LONGEST_OUTDATED, _OUTDATED_SECONDS * 2**self.outdated)
        self.outdated = min(self.outdated + 1, 16)
        return wait


@dataclass(eq=False)
class Runner(Generic[A]):
    """Run actions by `act`.

    `failed(key, action, error, failing)` tells of an error and returns after how many seconds it
    may be tried again. `ended(key, action, wait)` is called after every action, with that time,
    None after a success. `kind` tells actions apart whose failures say nothing about each other.
    `at_a_time` bounds those that are `counted`: where it is reached, an offer is answered FULL, or
    with `queued` the action waits for its turn and its key counts as busy.
    """

    act: Callable[[A], Awaitable[None]]
    _: KW_ONLY
    failed: Callable[[str, A, Exception, Failing], float]
    ended: Callable[[str, A, float | None], object]
    backoff: Callable[[], Backoff]
    kind: Callable[[A], str] = lambda _: ""
    at_a_time: int | None = None
    counted: Callable[[A], bool] = lambda _: True
    queued: bool = False

    def __post_init__(self) -> None:
        # None: it waits for its turn.
        self._busy: dict[str, tuple[asyncio.Task[None] | None, A]] = {}
        self._waiting: deque[str] = deque()
        self._running = 0
        self._failing: dict[str, dict[str, Failing]] = {}

    @property
    def busy(self) -> Collection[str]:
        """The keys at which something is under way or waits for its turn."""
        return self._busy.keys()

    @property
    def full(self) -> bool:
        return self.at_a_time is not None and self._running >= self.at_a_time

    def under_way(self) -> Iterator[A]:
        return (action for _, action in self._busy.values())

    def offer(self, key: str, action: A) -> Answer:
        """Begin it, unless something speaks against that."""
        if key in self._busy:
            return Answer.BUSY
        if self.left(key, action) > 0:
            return Answer.EARLY
        if not self.counted(action):
            self._start(key, action)
        elif not self.full:
            self._running += 1
            self._start(key, action)
        elif self.queued:
            self._busy[key] = None, action
            self._waiting.append(key)
        else:
            return Answer.FULL
        return Answer.BEGUN

    def left(self, key: str, action: A) -> float:
        """For how many seconds an action of this kind has to wait after a failure."""
        failing = self.known(key, action)
        return failing.not_before - time.monotonic() if failing else 0.0

    def known(self, key: str, action: A) -> Failing | None:
        """What failed of this kind at this key, None where nothing did since the last success."""
        return self._failing.get(key, {}).get(self.kind(action))

    def wait(self, key: str, action: A, seconds: float) -> None:
        """None of its kind begins at this key before that time is over."""
        self.failing(key, action).not_before = time.monotonic() + seconds

    def failing(self, key: str, action: A) -> Failing:
        kinds = self._failing.setdefault(key, {})
        if (failing := kinds.get(self.kind(action))) is None:
            failing = kinds[self.kind(action)] = Failing(self.backoff())
        return failing

    def all_failing(self) -> Iterator[Failing]:
        return (failing for kinds in self._failing.values() for failing in kinds.values())

    def forget(self, key: str) -> None:
        """Nothing is to be done there: what failed before says nothing any more."""
        self._failing.pop(key, None)

    def forget_but(self, keys: Collection[str]) -> None:
        for key in self._failing.keys() - keys:
            del self._failing[key]

    def forget_waiting(self) -> None:
        """What waits for its turn was decided from what counts no longer."""
        for key in self._waiting:
            del self._busy[key]
        self._waiting.clear()

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Begin nothing that waits, let actions under way end for so long, then cancel them, and
        wait for that at most as long again as a stop takes."""
        tasks = self._under_way()
        late = await _ended(tasks, seconds)
        for task in late:
            task.cancel()
        await _ended(late, STOP_SECONDS)

    async def end(self) -> None:
        """Begin nothing that waits, cancel what is under way, and wait until all of it has ended,
        however long: whoever comes next must not meet it."""
        await ended(*self._under_way())

    def _under_way(self) -> list[asyncio.Task[None]]:
        self.forget_waiting()
        return [task for task, _ in self._busy.values() if task is not None]

    def _start(self, key: str, action: A) -> None:
        self._busy[key] = asyncio.create_task(self._do(key, action)), action

    async def _do(self, key: str, action: A) -> None:
        wait: float | None = None
        try:
            await self.act(action)
        except Exception as error:  # noqa: BLE001 - what it is, is for `failed` to say
            wait = self.failed(key, action, error, self.failing(key, action))
            self.wait(key, action, wait)
        else:
            self._failing.get(key, {}).pop(self.kind(action), None)
        finally:
            del self._busy[key]
            if self.counted(action):
                self._running -= 1
                self._next()
        self.ended(key, action, wait)

    def _next(self) -> None:
        if self._waiting:
            key = self._waiting.popleft()
            self._running += 1
            self._start(key, self._busy[key][1])


async def _ended(tasks: Iterable[asyncio.Task[None]], seconds: float) -> set[asyncio.Task[None]]:
    """Those that have not ended after so long."""
    waited_for = set(tasks)
    if not waited_for:
        return set()
    _, late = await asyncio.wait(waited_for, timeout=seconds)
    return late
