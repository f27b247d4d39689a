"""Tells of VolumeSnapshotContents whose node is lost: nobody restores their snapshots, and nobody
removes them.

Nothing is deleted or let go: that is for a person to do (`localvolume remove-finalizers`). So a
look now and then is enough, which lists the contents; none is kept in memory.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Final

from localvolume.controller.caches.trimmedsnapshots import CONTENTS, KnownContent
from localvolume.controller.leading import Means
from localvolume.controller.plan.nodes import Nodes
from localvolume.controller.volumes.reporting import EVENT_LOST
from localvolume.kube.backoff import Backoff
from localvolume.kube.correlate import ObjectRef
from localvolume.kube.errors import ApiError, NotThere, TellTheAdministrator
from localvolume.kube.kinds import NODES
from localvolume.kube.listing import listed
from localvolume.reconcile.loop import CannotLook, Loop
from localvolume.volumes import marks
from localvolume.volumes.objects import is_being_deleted, is_csi
from localvolume.volumes.snapshots import owner_of

log = logging.getLogger(__name__)

FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 60.0
"""Bounds of the time between two attempts; a server may ask for more."""

_NEVER: Final = float("-inf")


def of_lost_nodes(contents: Iterable[KnownContent], nodes: Nodes) -> list[KnownContent]:
    """Those of our driver that an agent has marked as its node's, and whose node is not there."""
    return [
        one
        for one in contents
        if one.spec.driver == marks.CSI_DRIVER
        and (owner := owner_of(one))
        and nodes.by_key(owner) is None
    ]


def said_of(content: KnownContent) -> str:
    """What people are told of one."""
    owner = owner_of(content)
    text = f"its node {owner} is not there: "
    if not is_being_deleted(content):
        return f"{text}no volume can be made with its snapshot until the node is back"
    return (
        f"{text}nobody removes its snapshot, or lets the object go. If the node is lost for good:"
        f" localvolume remove-finalizers --node {owner}"
    )


class LostContents:
    """One leadership's look at them: when Nodes have come or gone, and every `pace.resync`."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._nodes: frozenset[str] = frozenset()
        self._looked = _NEVER
        self._said: dict[str, str] = {}
        self._refused = ""
        self._backoff = Backoff(FIRST_WAIT, LONGEST_WAIT)
        self.loop = Loop("contents of lost nodes", self._look)

    async def _look(self) -> float:
        """Returns in how many seconds to look again. Raises CannotLook."""
        means, cluster = self._means, self._means.cluster
        await means.demand.wait_synced()
        now = time.monotonic()
        again = now - self._looked >= means.pace.resync
        if cluster.nodes.items.keys() == self._nodes and not again:
            return means.pace.lost
        try:
            contents = await self._contents()
            # Not before: Nodes come and go while the contents are read, and these are judged by.
            names, nodes = frozenset(cluster.nodes.items), cluster.nodes_now()
            found = of_lost_nodes(contents, nodes)
            lost = [one for one in found if not await self._is_there(owner_of(one))]
        except ApiError as error:
            text = f"contents of snapshots: {error}"
            raise CannotLook(text, self._backoff.next(error.after)) from error
        self._backoff.reset()
        means.metrics.lost_contents.set(len(lost))
        # Events expire: what is still so is said again.
        before = {} if again else self._said
        self._said = {one.metadata.uid: said_of(one) for one in lost}
        for one in lost:
            meta, text = one.metadata, self._said[one.metadata.uid]
            if before.get(meta.uid) != text:
                about = ObjectRef(
                    CONTENTS.kind, meta.name, meta.uid, api_version=CONTENTS.api_version
                )
                means.events.event(about, "Warning", EVENT_LOST, text)
        self._nodes, self._looked = names, now
        return means.pace.lost

    def _is_used(self) -> bool:
        """Whether anything is the driver's: where it is not switched on, nothing may be read."""
        classes, volumes = self._means.demand.classes.items, self._means.cluster.volumes.items
        return any(one.provisioner == marks.CSI_DRIVER for one in classes.values()) or any(
            is_csi(one) for one in volumes.values()
        )

    async def _contents(self) -> list[KnownContent]:
        if not self._is_used():
            return []
        try:
            found = await listed(self._means.client, CONTENTS)
        except NotThere:
            return []  # the cluster does not have the kind
        except TellTheAdministrator as error:
            if self._refused != str(error):
                self._refused = str(error)
                log.info("contents of snapshots are not looked at: %s", error)
            return []
        self._refused = ""
        return found

    async def _is_there(self, owner: str) -> bool:
        """Asks the API server: a node that a stale cache misses is not lost."""
        try:
            await self._means.client.get(NODES, owner)
        except NotThere:
            return False
        return True
