"""What the roles of a leader have in common: what each works with, and how it runs."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, NoReturn, TypeVar

from localvolume.controller.caches.cluster import Cluster
from localvolume.controller.caches.demand import Demand
from localvolume.controller.executor import Executor
from localvolume.controller.metrics import ControllerMetrics
from localvolume.controller.model import Policy
from localvolume.controller.workqueue import WorkQueue
from localvolume.kube.client import Client
from localvolume.kube.events import EventRecorder
from localvolume.volumes.periods import Clock

SLICE_SECONDS: Final = 0.02
"""How long judging may block the event loop."""


S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often things are done, and how many at once; times in seconds.

    Volumes of lost nodes are judged every `lost`, all volumes every `resync`. A claim that no node
    takes is reported after `nowhere`: agents need a moment to publish capacities for a new class.
    """

    lost: float = 10.0
    resync: float = 600.0
    nowhere: float = 5.0
    at_a_time: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a role works with."""

    client: Client
    cluster: Cluster
    demand: Demand
    events: EventRecorder
    metrics: ControllerMetrics
    policy: Policy
    pace: Pace
    clock: Clock


class Leading(ABC, Generic[S]):
    """One leadership of one role: made when it begins, run until it is cancelled."""

    _executor: Executor[S]

    def __init__(self, means: Means) -> None:
        self._cluster = means.cluster
        self._demand = means.demand
        self._events = means.events
        self._metrics = means.metrics
        self._policy = means.policy
        self._pace = means.pace
        self._queue = WorkQueue()
        self._turned = time.monotonic()

    @property
    def refused(self) -> str:
        """What the API server does not let us do, "" if nothing."""
        return self._executor.refused

    @property
    def behind(self) -> float:
        """For how many seconds nothing has been judged, although something waits."""
        # What came after a quiet hour, a moment ago, has not been waiting for an hour.
        since = max(self._turned, self._queue.since)
        return time.monotonic() - since if len(self._queue) else 0.0

    async def run(self) -> None:
        """Run until cancelled, then give up what is under way."""
        await self._start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._judge_forever())
                tasks.create_task(_every(self._pace.lost, self._look_at_lost))
                tasks.create_task(_every(self._pace.resync, self._resync))
        finally:
            self._hear_nothing()
            self._queue.close()
            await self._executor.stop()

    async def _judge_forever(self) -> None:
        while True:
            self._turned = time.monotonic()
            await self._queue.wait()
            self._turned = until = time.monotonic()
            until += SLICE_SECONDS
            judge = self._judging()
            while (name := self._queue.pop()) is not None:
                judge(name)
                if time.monotonic() >= until:
                    break
            self._judged()
            await asyncio.sleep(0)

    @abstractmethod
    async def _start(self) -> None:
        """Wait until everything that judging needs is known; from then on, listen for changes."""

    @abstractmethod
    def _hear_nothing(self) -> None:
        """Stop listening for changes."""

    @abstractmethod
    def _judging(self) -> Callable[[str], object]:
        """The function that judges one name, for one slice of time."""

    def _judged(self) -> None:
        """Called after each slice."""

    def _look_at_lost(self) -> None:
        """Called every `pace.lost` seconds."""

    @abstractmethod
    def _resync(self) -> None:
        """Have everything judged again, and report again what is still so: Events expire."""


async def _every(seconds: float, act: Callable[[], object]) -> NoReturn:
    while True:
        await asyncio.sleep(seconds)
        act()
