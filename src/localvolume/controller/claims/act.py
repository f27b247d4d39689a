"""Does one action about one claim: patches our label, and decides nothing.

Before anything is done because a Node does not exist, it is asked for once more, live: a Node that
joined a moment ago may not have come by the watch yet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from localvolume.config.syntax.names import fault_of_object_name
from localvolume.controller import patches
from localvolume.controller.caches.trimmed import NODES, KnownNode
from localvolume.controller.caches.trimmedclaims import CLAIMS, KnownClaim
from localvolume.controller.metrics import ControllerMetrics
from localvolume.controller.plan.claims import Action, Reschedule, Route, Unroute
from localvolume.controller.plan.nodes import Nodes
from localvolume.controller.volumes.preconditions import Superseded
from localvolume.kube.cache import key_of
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.errors import NotThere
from localvolume.kube.objects import PersistentVolumeClaim

log = logging.getLogger(__name__)

Due = Route | Unroute | Reschedule
"""What there is to do about a claim; of all else people are told at most."""


@dataclass(eq=False, kw_only=True)
class RouteActs:
    """`again(claim, nodes)` decides anew with these Nodes instead of those of the cache; `saw` is
    told what the API server returned, `told` what was rescheduled."""

    client: Client
    metrics: ControllerMetrics
    again: Callable[[PersistentVolumeClaim, Nodes], Action]
    saw: Callable[[KnownClaim], object]
    told: Callable[[Reschedule], None]

    async def do(self, action: Due) -> None:
        """Raises Superseded, NotLeading, and the errors of kube.errors."""
        if isinstance(action, Reschedule):
            await self._reschedule(action)
            return
        await self._must_be_gone(action.claim, action.gone)
        if isinstance(action, Route):
            await self._patch(action, patches.routed(action.claim, action.key), "routed")
        else:
            await self._patch(action, patches.routed(action.claim, None), "unrouted")

    async def _reschedule(self, action: Reschedule) -> None:
        node = await self._node(action.node)
        again = self.again(action.claim, Nodes([] if node is None else [node]))
        match again:
            case Reschedule():
                await self._patch(again, patches.rescheduled(again.claim), "rescheduled")
                self.told(again)
            case Route(gone=""):
                # The Node is there, and only the watch has not told of it yet.
                await self._patch(again, patches.routed(again.claim, again.key), "routed")
            case _:
                log.debug("%s: %s", key_of(action.claim), again.reason)

    async def _must_be_gone(self, claim: PersistentVolumeClaim, name: str) -> None:
        """Another node may be making the volume: only if that is really not there."""
        if name and await self._node(name) is not None:
            raise Superseded(f"{key_of(claim)}: the node {name} is there")

    async def _node(self, name: str) -> KnownNode | None:
        if fault_of_object_name(name) is not None:
            return None  # no Node can have it
        try:
            return await self.client.get(NODES, name)
        except NotThere:
            return None

    async def _patch(self, action: Action, patch: MergePatch, result: str) -> None:
        meta = action.claim.metadata
        self.saw(await self.client.patch(CLAIMS, meta.name, patch, meta.namespace))
        self.metrics.routed.labels(result).inc()
        log.info("%s %s: %s", result, key_of(action.claim), action.reason)
