"""Runs actions: at most one per key, a limited number at a time, with a wait after a failure.

Its state is kept in memory, for this process only. It says when something is tried again, never
whether it is due.
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
"""How long the process, when it ends, waits for actions under way to end."""

_OUTDATED_SECONDS: Final = 0.2
_LONGEST_OUTDATED: Final = 2.0


class Answer(Enum):
    """What became of an action that was offered."""

    BEGUN = auto()
    BUSY = auto()
    """Another action for its key is under way."""
    EARLY = auto()
    """The last one of its kind failed, and the wait is not over."""
    FULL = auto()
    """As many actions as allowed are under way."""


@dataclass(slots=True)
class Failing:
    """The failures of actions of one kind for one key, until the next success."""

    backoff: Backoff
    not_before: float = 0.0
    """When the next attempt may begin (time.monotonic)."""
    outdated: int = 0
    """How many times in a row something that the action relied on had changed."""
    note: Any = None
    """What the role remembers of the failure."""

    def again(self, at_least: float | None = None) -> float:
        """Count one more failure; return in how many seconds to try again."""
        return self.backoff.next(at_least)

    def overtaken(self) -> float:
        """The same if something had changed: soon, but never in a tight loop, as watches may
        report the change late."""
        wait: float = min(_LONGEST_OUTDATED, _OUTDATED_SECONDS * 2**self.outdated)
        self.outdated = min(self.outdated + 1, 16)
        return wait


@dataclass(eq=False)
class Runner(Generic[A]):
    """Runs actions with `act`.

    `failed(key, action, error, failing)` reports an error and returns after how many seconds to try
    again. `ended(key, action, wait)` is called after every action with that time, or None after a
    success. `kind` separates actions whose failures say nothing about each other. `at_a_time`
    limits the actions that are `counted`: beyond it, an offer is answered FULL, or with `queued`
    the action waits for its turn and its key counts as busy.
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
        # A task of None: the action waits for its turn.
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
        """Begin or queue the action, unless its key is busy, it is too early, or all is full."""
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
        """For how many more seconds an action of this kind must wait after a failure."""
        failing = self.known(key, action)
        return failing.not_before - time.monotonic() if failing else 0.0

    def known(self, key: str, action: A) -> Failing | None:
        """The failures of this kind for this key; None if none since the last success."""
        return self._failing.get(key, {}).get(self.kind(action))

    def wait(self, key: str, action: A, seconds: float) -> None:
        """Begin no action of this kind for this key until that time is over."""
        self.failing(key, action).not_before = time.monotonic() + seconds

    def failing(self, key: str, action: A) -> Failing:
        kinds = self._failing.setdefault(key, {})
        if (failing := kinds.get(self.kind(action))) is None:
            failing = kinds[self.kind(action)] = Failing(self.backoff())
        return failing

    def all_failing(self) -> Iterator[Failing]:
        return (failing for kinds in self._failing.values() for failing in kinds.values())

    def forget(self, key: str) -> None:
        """Forget the failures of a key for which there is nothing to do any more."""
        self._failing.pop(key, None)

    def forget_but(self, keys: Collection[str]) -> None:
        for key in self._failing.keys() - keys:
            del self._failing[key]

    def forget_waiting(self) -> None:
        """Drop what waits for its turn: it was decided from what no longer counts."""
        for key in self._waiting:
            del self._busy[key]
        self._waiting.clear()

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Begin nothing that waits, give actions under way `seconds` to end, then cancel them and
        wait for that STOP_SECONDS at most."""
        tasks = self._under_way()
        late = await _ended(tasks, seconds)
        for task in late:
            task.cancel()
        await _ended(late, STOP_SECONDS)

    async def end(self) -> None:
        """Begin nothing that waits, cancel what is under way, and wait until all of it has ended,
        however long that takes: a successor must not meet it."""
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
        except Exception as error:  # noqa: BLE001 - `failed` says what it is
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
    """Wait that long; return the tasks that have not ended by then."""
    waited_for = set(tasks)
    if not waited_for:
        return set()
    _, late = await asyncio.wait(waited_for, timeout=seconds)
    return late
