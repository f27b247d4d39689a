"""Takes the taint off the Node that keeps pods away until its volumes are offered.

Autoscalers make Nodes with a taint (`provisionerNotReadyNodeTaintKey`), so that no pod is scheduled
to a disk that nobody has found yet. With `removeNodeNotReadyTaint` we remove it, once the volumes
that are there have their PersistentVolumes. Nothing else waits for this, and nothing ends by it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from localvolume.agent.shared import Shared
from localvolume.config.model import Configuration
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client, JsonPatch
from localvolume.kube.correlate import EventType
from localvolume.kube.errors import ApiError, LookAgain, NotThere
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.kinds import NODES
from localvolume.kube.objects import Node
from localvolume.static.role import StaticRole

log = logging.getLogger(__name__)

EVENT_REMOVED = "NodeTaintRemoved"
EVENT_FAILED = "NodeTaintNotRemoved"


class Due(NamedTuple):
    """A taint to be removed: of which Node, told from its namesakes, and by which key."""

    uid: str
    key: str


def without_taints(node: Node, key: str) -> JsonPatch | None:
    """All taints of that key out of the list, every other one untouched; None without any.

    Bound to the very Node and to the key at each place: where the list has changed meanwhile, the
    API server refuses the whole. From the last to the first, as each removal moves what follows.
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


def begin(shared: Shared, static: StaticRole, configuration: Configuration) -> NotReadyTaint:
    """Make what removes it once the static volumes are offered. The caller runs it."""
    paces = shared.options.paces
    taint = NotReadyTaint(
        client=shared.client,
        events=shared.events,
        nodes=shared.nodes.items,
        node_name=shared.options.node_name,
        complete=static.complete,
        look=static.objects_changed,
        configuration=configuration,
        first_wait=paces.taint_first_wait,
        longest_wait=paces.taint_longest_wait,
    )
    shared.wakes.node.append(taint.node_changed)
    return taint


@dataclass(eq=False, kw_only=True)
class NotReadyTaint:
    """Run `run()` as a task; call `node_changed` and `reconfigure` when that happens.

    Each Node is rid of each key once: what somebody sets later, by hand, stays. `nodes` is the
    informer's copy. `complete` is set by whoever looks at the volumes whenever a look found nothing
    left to be offered; it is cleared here, and `look` then has the volumes looked at again, so that
    what counts is this Node with this configuration, and no look before it. The waits, in seconds,
    bound the time between two attempts: an administrator may have to allow it.
    """

    client: Client
    events: EventRecorder
    nodes: Mapping[str, Node]
    node_name: str
    complete: asyncio.Event
    look: Callable[[], object]
    configuration: Configuration
    first_wait: float
    longest_wait: float

    def __post_init__(self) -> None:
        self._wake = asyncio.Event()
        self._wake.set()
        self._done: set[Due] = set()

    def node_changed(self, *_: object) -> None:
        """The Node came, went or changed."""
        self._wake.set()

    def reconfigure(self, configuration: Configuration) -> None:
        """From now on another configuration counts; call it after those who look have it."""
        self.configuration = configuration
        self._wake.set()

    async def run(self) -> NoReturn:
        """See to what is due, and leave it as soon as something else is."""
        began: tuple[Due, Configuration] | None = None
        work: asyncio.Task[None] | None = None
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                due = self._due()
                to_do = (due, self.configuration) if due else None
                if to_do == began:
                    continue
                if work:
                    work.cancel()
                    await asyncio.wait([work])
                began = to_do
                work = asyncio.create_task(self._see_to(due)) if due else None
        finally:
            if work:
                work.cancel()
                await asyncio.wait([work])

    def _due(self) -> Due | None:
        node, configuration = self.nodes.get(self.node_name), self.configuration
        key = configuration.provisioner_not_ready_node_taint_key
        if node is None or not key or not configuration.remove_node_not_ready_taint:
            return None
        due = Due(node.metadata.uid, key)
        return None if due in self._done else due

    async def _see_to(self, due: Due) -> None:
        """Wait until the volumes are offered, then remove the taint, however often that fails."""
        # A look that is under way may have begun with the Node or configuration of before.
        for _ in range(2):
            self.complete.clear()
            self.look()
            await self.complete.wait()
        backoff = Backoff(self.first_wait, self.longest_wait)
        said = ""
        while True:
            after = None
            try:
                if await self._remove(due):
                    self._done.add(due)
                    return
                text = "its taints are being changed"
            except (LookAgain, NotThere) as error:
                text = str(error)
            except ApiError as error:
                text = str(error)
                after = error.after
                if text != said:
                    said = text
                    self._say_failed(due, text)
            except Exception:  # a mistake of ours about a taint must not end what serves volumes
                log.exception("the taint %s stays on the node: unexpected", due.key)
                text = "unexpected"
            wait = backoff.next(after)
            log.info("taint %s: tried again in %.1f s: %s", due.key, wait, text)
            await asyncio.sleep(wait)

    async def _remove(self, due: Due) -> bool:
        """Whether the Node has no such taint now. Raises ApiError."""
        node = await self.client.get(NODES, self.node_name)
        if node.metadata.uid != due.uid:
            # The informer will tell of it, and then it is seen to anew.
            raise LookAgain(f"the Node {self.node_name!r} is another one now")
        patch = without_taints(node, due.key)
        if patch is None:
            log.info("the node has no taint %s", due.key)
            return True
        changed = await self.client.patch(NODES, self.node_name, patch)
        text = f"removed the taint {due.key}: the node's volumes are offered"
        log.info("%s", text)
        self._event("Normal", EVENT_REMOVED, text)
        return without_taints(changed, due.key) is None

    def _say_failed(self, due: Due, text: str) -> None:
        log.warning("the taint %s stays on the node: %s", due.key, text)
        self._event("Warning", EVENT_FAILED, f"the taint {due.key} stays: {text}")

    def _event(self, type_: EventType, reason: str, text: str) -> None:
        self.events.event(ObjectRef.of_node(self.node_name), type_, reason, text)
