"""What pools warn of: said on the Node and in the log, once for each warning and each time anew."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from localvolume.dynamic.model import Pool
from localvolume.kube.correlate import ObjectRef
from localvolume.kube.events import EventRecorder

log = logging.getLogger(__name__)

EVENT_WARNING = "PoolWarning"
"""People must look at a pool before it becomes a problem."""


class Alerts:
    """Told of every look; a warning that was gone and comes back is said again."""

    def __init__(self, events: EventRecorder, node_name: str) -> None:
        self._events = events
        self._node = ObjectRef.of_node(node_name)
        self._said: dict[str, tuple[str, ...]] = {}

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
