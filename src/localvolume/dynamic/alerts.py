"""What pools warn of, and what is wrong with them: said on the Node, each time anew.

A warning is said once, in the log as well. A problem is repeated each hour on the Node, where
`localvolume status` reads it; in the log the role says it, once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from localvolume.dynamic.model import Pool
from localvolume.kube.correlate import ObjectRef
from localvolume.kube.events import EventRecorder

log = logging.getLogger(__name__)

EVENT_WARNING = "PoolWarning"
"""People must look at a pool before it becomes a problem."""

EVENT_PROBLEM = "PoolProblem"
"""A pool cannot be used, or not by all that should."""

_AGAIN_SECONDS = 3600.0


class Alerts:
    """Told of every look; a warning that was gone and comes back is said again."""

    def __init__(
        self,
        events: EventRecorder,
        node_name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._events = events
        self._node = ObjectRef.of_node(node_name)
        self._clock = clock
        self._said: dict[str, tuple[str, ...]] = {}
        self._problems: dict[str, tuple[str, float]] = {}

    def tell(self, pools: Sequence[Pool]) -> None:
        """Say what is new. A pool that cannot be looked at keeps what was said of it."""
        said: dict[str, tuple[str, ...]] = {}
        for pool in pools:
            name, report = pool.config.name, pool.report
            before = self._said.get(name, ())
            if report.problem:
                said[name] = before
                continue
            said[name] = tuple(report.warnings)
            for text in report.warnings:
                if text not in before:
                    log.warning("pool %s: %s", name, text)
                    self._events.event(self._node, "Warning", EVENT_WARNING, f"pool {name}: {text}")
            if before and not report.warnings:
                log.info("pool %s: nothing is to be warned of any more", name)
        self._said = said

    def tell_problems(self, problems: Mapping[str, str]) -> None:
        """Say what is wrong, by the pool's name, where that is new or was said an hour ago."""
        now = self._clock()
        for name in self._problems.keys() - problems.keys():
            log.info("pool %s: its problem is gone", name)
            del self._problems[name]
        for name, text in problems.items():
            said, when = self._problems.get(name, ("", 0.0))
            if said == text and now - when < _AGAIN_SECONDS:
                continue
            self._problems[name] = (text, now)
            self._events.event(self._node, "Warning", EVENT_PROBLEM, f"pool {name}: {text}")
