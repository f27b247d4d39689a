"""Does one action for a VolumeSnapshotContent: cuts, finds or removes a snapshot, and tells it.

Each step can be repeated, and each is written down before the next: the content is this node's and
being cut, the snapshot is cut, the status tells of it, it is not being cut any more. So an agent
that dies at any point leaves what the next one completes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from localvolume.backends.model import Record
from localvolume.dynamic.calls import NoRoom, NotNow, Refused, Unknown, Volume, Volumes, Wrong
from localvolume.kube.client import Client, JsonPatch, MergePatch
from localvolume.kube.correlate import ObjectRef
from localvolume.kube.errors import NotThere
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import SNAPSHOT_CLASSES, SNAPSHOT_CONTENTS
from localvolume.kube.snapshotobjects import VolumeSnapshotClass, VolumeSnapshotContent
from localvolume.snapshots.metrics import SnapshotMetrics
from localvolume.snapshots.paces import SnapshotPaces
from localvolume.snapshots.plan import (
    Action,
    Cut,
    Find,
    LetGo,
    Refuse,
    Remove,
    Tidy,
    allows_full_copies,
    fault_of_class,
    is_to_go,
)
from localvolume.volumes.moments import written
from localvolume.volumes.patches import bound_to, without_finalizer
from localvolume.volumes.snapshots import (
    BEING_CREATED,
    FINALIZER,
    NODE_ANNOTATION,
)

log = logging.getLogger(__name__)

EVENT_NOT_CUT: Final = "SnapshotCreationFailed"
EVENT_NOT_FOUND: Final = "SnapshotContentCheckandUpdateFailed"
EVENT_NOT_REMOVED: Final = "SnapshotDeleteError"
"""csi-snapshotter's reasons, to the letter."""


def is_final(error: Exception) -> bool:
    """Whether nothing of the snapshot can be under way any more after this error.

    csi-snapshotter takes gRPC's Unavailable and ResourceExhausted for errors that are not final.
    """
    return isinstance(error, Refused) and not isinstance(error, NoRoom | NotNow)


@dataclass(eq=False, kw_only=True)
class Acts:
    """`contents` holds the contents as they are known; it is told of each that is written."""

    client: Client
    contents: Informer[VolumeSnapshotContent]
    volumes: Volumes
    events: EventRecorder
    metrics: SnapshotMetrics
    node_key: str
    paces: SnapshotPaces

    async def act(self, action: Action) -> None:
        """Raises calls.Refused, ApiError, and what a pool raises."""
        name = action.content.metadata.name
        log.info("snapshot content %s: %s: %s", name, type(action).__name__, action.reason)
        match action:
            case Cut():
                await self._cut(action)
            case Find():
                await self._find(action)
            case Tidy():
                await self._not_being_cut(action.content)
            case Remove():
                await self._remove(action)
            case LetGo():
                await self._let_go(action)
            case Refuse():
                content = await self._own(action.content)
                if is_to_go(content):
                    self._say(content, "remove", EVENT_NOT_REMOVED, action.reason)
                else:
                    await self._tell(content, "cut", EVENT_NOT_CUT, action.reason)
                raise Wrong(action.reason)
            case _:
                raise NotImplementedError(action)

    # --- cutting and finding -------------------------------------------------------------------

    async def _cut(self, action: Cut) -> None:
        content = action.content
        found = await self._class_of(content)
        if BEING_CREATED not in content.metadata.annotations and (
            fault := fault_of_class(content, found)
        ):
            content = await self._own(content)
            await self._tell(content, "cut", EVENT_NOT_CUT, f"Failed to create snapshot: {fault}")
            raise Wrong(fault)
        content = await self._own(content, {BEING_CREATED: "yes"})
        try:
            snapshot = await self.volumes.snapshot(
                action.handle, action.source, full_copies=allows_full_copies(found)
            )
        except Exception as error:
            if is_final(error):
                content = await self._not_being_cut(content)
            text = f"Failed to create snapshot of volume {action.source}: {_text(error)}"
            await self._tell(content, "cut", EVENT_NOT_CUT, text)
            raise
        content = await self._tell_of(content, snapshot.record)
        await self._not_being_cut(content)

    async def _find(self, action: Find) -> None:
        content = await self._own(action.content)
        try:
            snapshot = await self._there(action.handle)
        except Exception as error:
            text = f"Failed to check and update snapshot content: {_text(error)}"
            await self._tell(content, "find", EVENT_NOT_FOUND, text)
            raise
        await self._tell_of(content, snapshot.record)

    async def _there(self, handle: str) -> Volume:
        if (found := await self.volumes.find_snapshot(handle)) is None:
            raise Unknown(f"there is no snapshot {handle} here")
        return found

    async def _class_of(self, content: VolumeSnapshotContent) -> VolumeSnapshotClass | None:
        """None if it has none, or that is gone."""
        if name := content.spec.volume_snapshot_class_name:
            with contextlib.suppress(NotThere):
                return await self.client.get(SNAPSHOT_CLASSES, name)
        return None

    # --- removing ------------------------------------------------------------------------------

    async def _remove(self, action: Remove) -> None:
        content = await self._own(action.content)
        try:
            await self.volumes.remove_snapshot(action.handle)
        except Exception as error:
            text = f"Failed to delete snapshot {action.handle}: {_text(error)}"
            self._say(content, "remove", EVENT_NOT_REMOVED, text)
            raise
        if content.status is not None:
            gone = ("snapshotHandle", "readyToUse", "creationTime", "restoreSize")
            content = await self._write_status(content, dict.fromkeys(gone))
        await self._without_finalizer(content)

    async def _let_go(self, action: LetGo) -> None:
        if action.by_anyone:
            await asyncio.sleep(random.uniform(0, self.paces.spread))  # noqa: S311 - no secret
            if self.contents.items.get(action.content.metadata.name) is not action.content:
                return
        await self._without_finalizer(action.content)

    async def _without_finalizer(self, content: VolumeSnapshotContent) -> None:
        if FINALIZER in content.metadata.finalizers:
            await self._patch(content, without_finalizer(content, FINALIZER))

    # --- what is told --------------------------------------------------------------------------

    async def _own(
        self, content: VolumeSnapshotContent, more: Mapping[str, str] | None = None
    ) -> VolumeSnapshotContent:
        """Write on the content that it is this node's. Raises LookAgain if it has changed since."""
        wanted = {NODE_ANNOTATION: self.node_key, **(more or {})}
        if wanted.items() <= content.metadata.annotations.items():
            return content
        return await self._patch(content, bound_to(content, annotations=wanted))

    async def _not_being_cut(self, content: VolumeSnapshotContent) -> VolumeSnapshotContent:
        if BEING_CREATED not in content.metadata.annotations:
            return content
        return await self._patch(content, bound_to(content, annotations={BEING_CREATED: None}))

    async def _tell_of(
        self, content: VolumeSnapshotContent, record: Record
    ) -> VolumeSnapshotContent:
        """Say on the content that its snapshot is there."""
        return await self._write_status(
            content,
            {
                "snapshotHandle": record.name,
                "creationTime": record.cut_at,
                "restoreSize": record.size_bytes,
                "readyToUse": True,
                "error": None,
            },
        )

    async def _tell(
        self, content: VolumeSnapshotContent, operation: str, reason: str, text: str
    ) -> None:
        """Say on the content why there is no snapshot, for the snapshot-controller to pass on."""
        self._say(content, operation, reason, text)
        status = content.status
        if status is not None and status.error is not None and status.error.message == text:
            return
        error = {"time": written(time.time()), "message": text}
        await self._write_status(content, {"readyToUse": False, "error": error})

    def _say(self, content: VolumeSnapshotContent, operation: str, reason: str, text: str) -> None:
        self.metrics.failures.labels(operation).inc()
        meta, kind = content.metadata, SNAPSHOT_CONTENTS
        about = ObjectRef(kind.kind, meta.name, meta.uid, api_version=kind.api_version)
        self.events.event(about, "Warning", reason, text)

    async def _write_status(
        self, content: VolumeSnapshotContent, status: dict[str, Any]
    ) -> VolumeSnapshotContent:
        patch = MergePatch({**bound_to(content).body, "status": status})
        return await self._patch(content, patch, subresource="status")

    async def _patch(
        self,
        content: VolumeSnapshotContent,
        patch: MergePatch | JsonPatch,
        subresource: str | None = None,
    ) -> VolumeSnapshotContent:
        name = content.metadata.name
        made = await self.client.patch(SNAPSHOT_CONTENTS, name, patch, subresource=subresource)
        self.contents.apply_own_write(made)
        return made


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
