"""The leader's role for volumes: judges them when they or their nodes change, and starts actions.

Level-triggered: an event only says which volumes to judge again, with all that is known then.
Missed, duplicate or reordered events change nothing but the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from localvolume.controller.executor import Executor
from localvolume.controller.leading import Leading, Means
from localvolume.controller.model import Action, Keep, Report, Wait
from localvolume.controller.plan.nodes import Nodes
from localvolume.controller.plan.volumes import decide
from localvolume.controller.volumes.act import Acts
from localvolume.controller.volumes.counting import Counting
from localvolume.controller.volumes.reporting import Reporter

log = logging.getLogger(__name__)


class Role(Leading[Action]):
    """Adopts, lets go, reports or removes volumes."""

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self._reporter = Reporter(means.events)
        self._counting = Counting(means.policy, means.clock, means.client.clock)
        acts = Acts(
            client=means.client,
            reporter=self._reporter,
            metrics=means.metrics,
            counting=self._counting,
            saw=means.cluster.volumes.apply_own_write,
        )
        self._executor = Executor[Action](acts.do, self._queue, at_a_time=means.pace.at_a_time)
        self._lost: set[str] = set()

    async def _start(self) -> None:
        """Judge nothing before all volumes and nodes are known: a node that has not been read yet
        would seem to be lost."""
        await self._cluster.wait_synced()
        self._cluster.listener = self._queue.add
        self._queue.add(self._cluster.volumes.items)

    def _hear_nothing(self) -> None:
        self._cluster.listener = None

    def _look_at_lost(self) -> None:
        self._queue.add(self._lost)

    def _resync(self) -> None:
        self._reporter.forget()
        self._queue.add(self._cluster.volumes.items)

    def _judging(self) -> Callable[[str], None]:
        nodes = self._cluster.nodes_now()
        return lambda name: self._judge(name, nodes)

    def _judge(self, name: str, nodes: Nodes) -> None:
        volume = self._cluster.volumes.items.get(name)
        if volume is None:
            self._counting.forget(name)
        try:
            action = None if volume is None else decide(self._counting.facts(nodes, volume), volume)
        except Exception:  # a bug that shows with one volume must not stop the others
            log.exception("%s cannot be judged", name)
            return
        if self._metrics.judged(name, action):
            self._lost.add(name)
        else:
            self._lost.discard(name)
        match action:
            case None | Keep():
                self._reporter.quiet(name)
                self._executor.forget(name)
            case Report() | Wait():
                self._executor.forget(name)
                self._reporter.held(action)
                if isinstance(action, Wait):
                    self._queue.later(name, action.seconds)
            case _:
                self._executor.begin(name, action)
