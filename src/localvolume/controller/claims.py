"""The leader's role for claims: judges them when they, classes, capacities or nodes change.

Level-triggered like volumes/role.py, with a queue of its own: claims wait for no volume. An act
patches our label, and decides nothing. Before anything is done because a Node does not exist, the
API server is asked once more: the watch may not have brought a Node that has just joined.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from localvolume.config.syntax.names import fault_of_object_name
from localvolume.controller.caches.trimmed import NODES, KnownNode
from localvolume.controller.caches.trimmedclaims import CLAIMS, KnownClaim
from localvolume.controller.executor import Executor
from localvolume.controller.leading import Leading, Means
from localvolume.controller.metrics import ControllerMetrics
from localvolume.controller.plan.claims import (
    EVENT_FAILED,
    Action,
    Facts,
    Keep,
    Nowhere,
    Refusal,
    Reschedule,
    Route,
    Unroute,
    decide,
    refusals,
)
from localvolume.controller.plan.ledger import Held, Ledger
from localvolume.controller.plan.nodes import Nodes
from localvolume.controller.volumes.preconditions import Superseded
from localvolume.kube.cache import key_of
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.errors import NotThere
from localvolume.kube.events import ObjectRef
from localvolume.kube.objects import PersistentVolumeClaim
from localvolume.volumes import claims, marks
from localvolume.volumes.patches import bound_to

log = logging.getLogger(__name__)

AT_A_TIME: Final = 16
"""How many labels are being written at the same time."""

Due = Route | Unroute | Reschedule
"""The decisions that call for an act on a claim; all others are at most reported."""


@dataclass(eq=False, kw_only=True)
class RouteActs:
    """`again(claim, nodes)` decides again, with these Nodes instead of the cached ones. `saw` is
    called with what the API server returned, `told` with what was rescheduled."""

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
            await self._patch(action, routed(action.claim, action.key), "routed")
        else:
            await self._patch(action, routed(action.claim, None), "unrouted")

    async def _reschedule(self, action: Reschedule) -> None:
        node = await self._node(action.node)
        again = self.again(action.claim, Nodes([] if node is None else [node]))
        match again:
            case Reschedule():
                # Remove the selected node, and with it our label for that node.
                annotations = {claims.SELECTED_NODE_ANNOTATION: None}
                labels = {marks.NODE_LABEL: None}
                patch = bound_to(again.claim, annotations=annotations, labels=labels)
                await self._patch(again, patch, "rescheduled")
                self.told(again)
            case Route(gone=""):
                # The Node exists, but the watch has not brought it yet.
                await self._patch(again, routed(again.claim, again.key), "routed")
            case _:
                log.debug("%s: %s", key_of(action.claim), again.reason)

    async def _must_be_gone(self, claim: PersistentVolumeClaim, name: str) -> None:
        """Raise Superseded if the node is there: it may be making the volume."""
        if name and await self._node(name) is not None:
            raise Superseded(f"{key_of(claim)}: the node {name} is there")

    async def _node(self, name: str) -> KnownNode | None:
        if fault_of_object_name(name) is not None:
            return None  # no Node can have this name
        try:
            return await self.client.get(NODES, name)
        except NotThere:
            return None

    async def _patch(self, action: Action, patch: MergePatch, result: str) -> None:
        meta = action.claim.metadata
        self.saw(await self.client.patch(CLAIMS, meta.name, patch, meta.namespace))
        self.metrics.routed.labels(result).inc()
        log.info("%s %s: %s", result, key_of(action.claim), action.reason)


def routed(claim: PersistentVolumeClaim, key: str | None) -> MergePatch:
    """Patches the label by which a node's agent finds the claim; None removes it."""
    return bound_to(claim, labels={marks.NODE_LABEL: key})


class Routes(Leading[Due]):
    """Routes each claim to the node that is to serve it."""

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        acts = RouteActs(
            client=means.client,
            metrics=means.metrics,
            again=self._again,
            saw=means.demand.claims.apply_own_write,
            told=self._told,
        )
        self._executor = Executor[Due](
            acts.do,
            self._queue,
            at_a_time=AT_A_TIME,
            state_of=lambda action: action.claim.metadata.resource_version,
        )
        self._ledger = Ledger()
        self._refused: dict[str, dict[str, Refusal]] = {}
        self._placed: dict[str, str] = {}
        self._nowhere: dict[str, str] = {}
        self._nowhere_since: dict[str, float] = {}
        self._said: dict[str, str] = {}

    async def _start(self) -> None:
        await self._demand.wait_synced()
        self._demand.listener = self
        self._queue.add(self._demand.claims.items)

    def _hear_nothing(self) -> None:
        self._demand.listener = None
        self._metrics.unroutable.set(0)

    # --- what calls for judging ----------------------------------------------------------------

    def claims_changed(self, names: Iterable[str]) -> None:
        self._queue.add(names)

    def capacity_grew(self, class_name: str) -> None:
        self._queue.add([name for name, of in self._nowhere.items() if of == class_name])

    def node_changed(self, name: str) -> None:
        key = marks.node_key(name)
        self._queue.add([claim for claim, at in self._placed.items() if at in (name, key)])
        self._queue.add(self._nowhere)

    def _look_at_lost(self) -> None:
        self._ledger.expire(time.monotonic())
        self._queue.add(self._nowhere)

    def _resync(self) -> None:
        self._said.clear()
        self._queue.add(self._demand.claims.items)

    # --- judging -------------------------------------------------------------------------------

    def _judging(self) -> Callable[[str], None]:
        return self._judge

    def _judged(self) -> None:
        self._metrics.unroutable.set(len(self._nowhere))

    def _judge(self, name: str) -> None:
        claim = self._demand.claims.items.get(name)
        held = self._ledger.take_out(name)
        try:
            action = None if claim is None else decide(self._facts(claim), claim)
        except Exception:  # a bug that shows with one claim must not stop the others
            log.exception("%s cannot be judged", name)
            return
        self._place(name, action, held)
        if isinstance(action, Nowhere):
            self._nowhere[name] = claims.class_of(action.claim)
            self._say_nowhere(name, action)
        else:
            self._nowhere.pop(name, None)
            self._nowhere_since.pop(name, None)
            self._said.pop(name, None)
        match action:
            case Route() | Unroute() | Reschedule():
                self._executor.begin(name, action)
            case _:
                self._executor.forget(name)
        if claim is None or claim.spec.volume_name:
            self._refused.pop(name, None)

    def _place(self, name: str, action: Action | None, held: Held | None) -> None:
        """Remember on which node it is about to take capacity, or which one was selected."""
        key = ""
        match action:
            case Keep():
                key = action.here
            case Route() if not action.claim.spec.volume_name:
                key = action.key
            case Reschedule():
                self._placed[name] = action.node
        if action is not None and key:
            now, claim = time.monotonic(), action.claim
            class_ = self._demand.classes.items.get(claims.class_of(claim))
            # Nobody is asked to serve a copy whose class waits for the first pod.
            provisioner = claims.provisioner_of(claim) or (class_.provisioner if class_ else "")
            size = claims.requested_bytes(claim) or 0
            since = held.since if held is not None and held.key == key else now
            self._ledger.put_in(name, Held(provisioner, key, size, since), now)
            self._placed[name] = key
        elif not isinstance(action, Reschedule):
            self._placed.pop(name, None)
        if held is not None and held.key != key:
            self._queue.add(self._nowhere)

    def _facts(self, claim: PersistentVolumeClaim, nodes: Nodes | None = None) -> Facts:
        return Facts(
            provisioners=self._policy.provisioners,
            flex_drivers=self._policy.flex_drivers,
            classes=self._demand.classes.items,
            nodes=self._cluster.nodes_now() if nodes is None else nodes,
            volumes=self._cluster.volumes.items,
            offers=self._demand.offers,
            sources=self._demand.sources(),
            taken=self._ledger.taken,
            refused=self._refusals(claim),
            now=time.time(),
        )

    def _again(self, claim: PersistentVolumeClaim, nodes: Nodes) -> Action:
        return decide(self._facts(claim, nodes), claim)

    def _refusals(self, claim: PersistentVolumeClaim) -> dict[str, Refusal]:
        name, nodes = key_of(claim), self._cluster.nodes_now()
        found = refusals(self._refused.pop(name, {}), claim, nodes, time.time())
        if found:
            self._refused[name] = found
        return found

    # --- telling -------------------------------------------------------------------------------

    def _told(self, action: Reschedule) -> None:
        text = f"{action.reason}: it is taken away, so that another one is chosen"
        self._event(action.claim, text)

    def _say_nowhere(self, name: str, action: Nowhere) -> None:
        now = time.monotonic()
        since = self._nowhere_since.get(name)
        if since is None:
            self._nowhere_since[name] = now
            loop = asyncio.get_running_loop()
            loop.call_later(self._pace.nowhere + 0.001, self._queue.add, [name])
        if now - (now if since is None else since) >= self._pace.nowhere:
            self._say(action.claim, action.reason)

    def _say(self, claim: KnownClaim | PersistentVolumeClaim, text: str) -> None:
        name = key_of(claim)
        if self._said.get(name) != text:
            self._said[name] = text
            self._event(claim, text)

    def _event(self, claim: PersistentVolumeClaim, text: str) -> None:
        self._events.event(ObjectRef.of_claim(claim.metadata), "Warning", EVENT_FAILED, text)
