"""What both roles write on contents, of snapshots and of groups: the node, and how the cut stands.

Each write is bound to the object that was seen, and is seen at once by those who decide next.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

from localvolume.dynamic.calls import NoRoom, NotNow, Refused
from localvolume.kube.client import Client, JsonPatch, MergePatch
from localvolume.kube.correlate import ObjectRef
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import Kind
from localvolume.snapshots.contents import C
from localvolume.volumes.moments import written
from localvolume.volumes.patches import bound_to, without_finalizer
from localvolume.volumes.snapshots import NODE_ANNOTATION


def is_final(error: Exception) -> bool:
    """Whether nothing of the snapshot can be under way any more after this error.

    csi-snapshotter takes gRPC's Unavailable and ResourceExhausted for errors that are not final.
    """
    return isinstance(error, Refused) and not isinstance(error, NoRoom | NotNow)


@dataclass(eq=False, kw_only=True)
class Telling(Generic[C]):
    """`contents` is told of each content that is written, and `count` of each failed operation.

    `begun` is the annotation that says that something may have been cut of which the status does
    not tell, and `finalizer` keeps a content until what it stands for is removed. `spread` is the
    time in seconds within which agents let go what is no node's.
    """

    client: Client
    kind: Kind[C]
    contents: Informer[C]
    events: EventRecorder
    count: Callable[[str], object]
    node_key: str
    begun: str
    finalizer: str
    spread: float

    async def own(self, content: C, more: Mapping[str, str] | None = None) -> C:
        """Write on the content that it is this node's. Raises LookAgain if it has changed since."""
        wanted = {NODE_ANNOTATION: self.node_key, **(more or {})}
        if wanted.items() <= content.metadata.annotations.items():
            return content
        return await self._patch(content, bound_to(content, annotations=wanted))

    async def being_cut(self, content: C) -> C:
        """Write that it is this node's, and that something may be cut from now on."""
        return await self.own(content, {self.begun: "yes"})

    async def not_being_cut(self, content: C) -> C:
        """Take away what says that something may have been cut of which it does not tell."""
        if self.begun not in content.metadata.annotations:
            return content
        return await self._patch(content, bound_to(content, annotations={self.begun: None}))

    async def mark(self, content: C, annotation: str, text: str) -> C:
        """Write the annotation, or with "" take it away."""
        if content.metadata.annotations.get(annotation, "") == text:
            return content
        return await self._patch(content, bound_to(content, annotations={annotation: text or None}))

    async def not_cut(self, content: C, error: Exception, reason: str, text: str) -> None:
        """Say why it could not be cut, and whether something may still be."""
        if is_final(error):
            content = await self.not_being_cut(content)
        await self.tell(content, "cut", reason, text)

    async def tell(self, content: C, operation: str, reason: str, text: str) -> None:
        """Say on the content why there is no snapshot, for the snapshot-controller to pass on."""
        self.say(content, operation, reason, text)
        status = content.status
        if status is not None and status.error is not None and status.error.message == text:
            return
        error = {"time": written(time.time()), "message": text}
        await self.write_status(content, {"readyToUse": False, "error": error})

    def say(self, content: C, operation: str, reason: str, text: str) -> None:
        """Say it in an Event alone."""
        self.count(operation)
        self.warn(content, reason, text)

    def warn(self, content: C, reason: str, text: str, *others: ObjectRef) -> None:
        """Say it in Events on the content and the others, where nothing that we did has failed."""
        meta, kind = content.metadata, self.kind
        about = ObjectRef(kind.kind, meta.name, meta.uid, api_version=kind.api_version)
        for one in (about, *others):
            self.events.event(one, "Warning", reason, text)

    async def write_status(self, content: C, status: dict[str, Any]) -> C:
        """Write these fields of the status. Raises LookAgain if it has changed since."""
        patch = MergePatch({**bound_to(content).body, "status": status})
        return await self._patch(content, patch, subresource="status")

    async def let_go(self, content: C, *, spread: bool = False) -> None:
        """Let the content go. `spread`: agents of all nodes do, and not all at once."""
        if spread:
            await asyncio.sleep(random.uniform(0, self.spread))  # noqa: S311 - no secret
            if self.contents.items.get(content.metadata.name) is not content:
                return
        await self.without_finalizer(content)

    async def without_finalizer(self, content: C) -> None:
        """Take the finalizer away, if it is there."""
        if self.finalizer in content.metadata.finalizers:
            await self._patch(content, without_finalizer(content, self.finalizer))

    async def _patch(
        self, content: C, patch: MergePatch | JsonPatch, subresource: str | None = None
    ) -> C:
        name = content.metadata.name
        made = await self.client.patch(self.kind, name, patch, subresource=subresource)
        self.contents.apply_own_write(made)
        return made


def text_of(error: Exception) -> str:
    """What is said of it."""
    return str(error) or type(error).__name__
