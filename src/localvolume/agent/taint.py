"""Removes the taint that keeps pods off the Node until its volumes are offered.

Autoscalers create Nodes with a taint (`provisionerNotReadyNodeTaintKey`), so that no pod is
scheduled before the disks are found. With `removeNodeNotReadyTaint` we remove it once the existing
volumes have their PersistentVolumes. Nothing else waits for this, and its failures end nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from localvolume.config.model import Configuration
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client, JsonPatch
from localvolume.kube.correlate import EventType
from localvolume.kube.errors import ApiError, LookAgain, NotThere
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.kinds import NODES
from localvolume.kube.objects import Node
from localvolume.kube.standing import Standing
from localvolume.reconcile.loop import Loop
from localvolume.reconcile.runner import Failing, Runner

log = logging.getLogger(__name__)

EVENT_REMOVED = "NodeTaintRemoved"
EVENT_FAILED = "NodeTaintNotRemoved"


class Due(NamedTuple):
    """A taint to remove: the Node's UID, as another Node may get the same name, and the key."""

    uid: str
    key: str


def without_taints(node: Node, key: str) -> JsonPatch | None:
    """Return a patch that removes all taints with that key and no others; None if there are none.

    It tests the Node's UID and the key at each index: if the list has changed meanwhile, the API
    server refuses the whole patch. It goes from last to first, as a removal moves what follows.
    """
    places = [place for place, taint in enumerate(node.spec.taints) if taint.key == key]
    if not places:
        return None
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": node.metadata.uid}
    ]
    for place in reversed(places):
        path = f"/spec/taints/{place}"
        operations += [
            {"op": "test", "path": f"{path}/key", "value": key},
            {"op": "remove", "path": path},
        ]
    return JsonPatch(operations)


@dataclass(eq=False, kw_only=True)
class NotReadyTaint:
    """Run `run()` as a task; call `volumes_offered` and `reconfigure` when that happens, and wake
    the loop when the Node changes.

    Each key is removed from each Node once: a taint that somebody sets later, by hand, stays.
    `nodes` is the informer's copy. `look_at_volumes` makes the static role look again, so that only
    looks at this Node with this configuration count. The waits, in seconds, bound the time between
    two attempts: an administrator may have to grant the right to do so.
    """

    client: Client
    events: EventRecorder
    nodes: Mapping[str, Node]
    node_name: str
    look_at_volumes: Callable[[], object]
    configuration: Configuration
    first_wait: float
    longest_wait: float

    def __post_init__(self) -> None:
        self.loop = Loop("the node's taint", self._look)
        self._runner = Runner[Due](
            self._remove,
            failed=self._failed,
            ended=lambda *_: self.loop.wake(),
            backoff=lambda: Backoff(self.first_wait, self.longest_wait),
        )
        self._stays = Standing(self._event, EVENT_FAILED, EVENT_REMOVED)
        self._done: set[Due] = set()
        self._seen_to: tuple[Due, Configuration] | None = None
        self._looks_left = 0
        """How many more looks must find all volumes offered before the taint is removed."""

    def volumes_offered(self) -> None:
        """A look at the volumes has found nothing left to be offered."""
        if self._looks_left:
            self._looks_left -= 1
            self.look_at_volumes() if self._looks_left else self.loop.wake()

    def reconfigure(self, configuration: Configuration) -> None:
        """Use this configuration from now on; call this once the static role has it."""
        self.configuration = configuration
        self.loop.wake()

    async def run(self) -> None:
        """Never returns."""
        try:
            await self.loop.run()
        finally:
            await self._runner.end()

    async def _look(self) -> float:
        """Return in how many seconds to try again; 0: not before something changes."""
        due = self._due()
        seen_to = (due, self.configuration) if due else None
        if seen_to != self._seen_to:
            self._seen_to = seen_to
            # A look under way may have begun with the previous Node or configuration.
            self._looks_left = 2 if due else 0
            if due:
                self.look_at_volumes()
        if due is None:
            self._stays.forget()
        if due is None or self._looks_left:
            return 0.0
        wait = self._runner.left(due.uid, due)
        if wait > 0:
            return wait
        self._runner.offer(due.uid, due)
        return 0.0

    def _due(self) -> Due | None:
        node, configuration = self.nodes.get(self.node_name), self.configuration
        key = configuration.provisioner_not_ready_node_taint_key
        if node is None or not key or not configuration.remove_node_not_ready_taint:
            return None
        due = Due(node.metadata.uid, key)
        return None if due in self._done else due

    async def _remove(self, due: Due) -> None:
        """Raises ApiError."""
        node = await self.client.get(NODES, self.node_name)
        if node.metadata.uid != due.uid:
            # The informer will report the new Node, and then this starts over.
            raise LookAgain(f"the Node {self.node_name!r} is another one now")
        if due != self._due():
            raise LookAgain("it is not to be removed any more")
        patch = without_taints(node, due.key)
        if patch is None:
            text = f"the node has no taint {due.key}"
            log.info("%s", text)
            self._stays.over(text)
        else:
            changed = await self.client.patch(NODES, self.node_name, patch)
            text = f"removed the taint {due.key}: the node's volumes are offered"
            log.info("%s", text)
            self._stays.forget()
            self._event("Normal", EVENT_REMOVED, text)
            if without_taints(changed, due.key) is not None:
                raise LookAgain("its taints are being changed")
        self._done.add(due)

    def _failed(self, _uid: str, due: Due, error: Exception, failing: Failing) -> float:
        if not isinstance(error, ApiError):  # a mistake of ours about a taint
            wait = failing.again()
            text = "the taint %s stays on the node: tried again in %.1f s: unexpected"
            log.error(text, due.key, wait, exc_info=error)
            return wait
        wait, text = failing.again(error.after), str(error)
        log.info("taint %s: tried again in %.1f s: %s", due.key, wait, text)
        if isinstance(error, LookAgain | NotThere):
            return wait
        if self._stays.stands(f"the taint {due.key} stays: {text}"):
            log.warning("the taint %s stays on the node: %s", due.key, text)
        return wait

    def _event(self, type_: EventType, reason: str, text: str) -> None:
        self.events.event(ObjectRef.of_node(self.node_name), type_, reason, text)
