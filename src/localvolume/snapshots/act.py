"""Does one action for a VolumeSnapshotContent: cuts, finds or removes a snapshot, and tells it.

Each step can be repeated, and each is written down before the next: the content is this node's and
being cut, the snapshot is cut, the status tells of it, it is not being cut any more. So an agent
that dies at any point leaves what the next one completes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field
from typing import Any, Final

from localvolume.backends.model import Record, lost
from localvolume.dynamic.calls import NotNow, Unknown, Volume, Volumes, Wrong
from localvolume.dynamic.classes.reserves import Reserve
from localvolume.kube.client import Client
from localvolume.kube.correlate import ObjectRef
from localvolume.kube.ending import ended
from localvolume.kube.errors import NotThere
from localvolume.kube.kinds import SNAPSHOT_CLASSES, SNAPSHOTS
from localvolume.kube.snapshotobjects import VolumeSnapshotClass, VolumeSnapshotContent
from localvolume.snapshots.plan import (
    Action,
    Cut,
    Find,
    LetGo,
    Refuse,
    Remove,
    TakeOn,
    TellFill,
    TellLost,
    Tidy,
    allows_full_copies,
    fault_of_class,
    is_to_go,
    reserve_of,
)
from localvolume.snapshots.telling import Telling, text_of
from localvolume.volumes.moments import written
from localvolume.volumes.snapshots import BEING_CREATED, RESERVE_ANNOTATION, is_ready

log = logging.getLogger(__name__)

EVENT_NOT_CUT: Final = "SnapshotCreationFailed"
EVENT_NOT_FOUND: Final = "SnapshotContentCheckandUpdateFailed"
EVENT_NOT_REMOVED: Final = "SnapshotDeleteError"
"""csi-snapshotter's reasons, to the letter."""

_Asked = tuple[str, str, str, bool, Reserve | None]
"""A snapshot's handle and its volume's, the namespace, and what its class says."""

EVENT_LOST: Final = "SnapshotLost"
EVENT_FILLING: Final = "SnapshotReserveFilling"


@dataclass(eq=False, kw_only=True)
class Acts:
    """`telling` writes on contents. One attempt waits for `cut_seconds` for its snapshot: what
    takes longer goes on, and must not hold up other contents."""

    client: Client
    volumes: Volumes
    telling: Telling[VolumeSnapshotContent]
    cut_seconds: float
    _late: dict[_Asked, asyncio.Task[Volume]] = field(default_factory=dict)
    """The cuts that an attempt has not waited for: the next one is told what came of them."""

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
                await self.telling.not_being_cut(action.content)
            case TakeOn():
                await self.telling.own(action.content)
            case Remove():
                await self._remove(action)
            case LetGo():
                await self.telling.let_go(action.content, spread=action.by_anyone)
            case TellLost():
                await self._tell_lost(action)
            case TellFill():
                await self._tell_fill(action)
            case Refuse():
                content = await self.telling.own(action.content)
                if is_to_go(content):
                    self.telling.say(content, "remove", EVENT_NOT_REMOVED, action.reason)
                else:
                    await self.telling.tell(content, "cut", EVENT_NOT_CUT, action.reason)
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
            content = await self.telling.own(content)
            text = f"Failed to create snapshot: {fault}"
            await self.telling.tell(content, "cut", EVENT_NOT_CUT, text)
            raise Wrong(fault)
        content = await self.telling.being_cut(content)
        try:
            snapshot = await self._cut_soon(
                action, full_copies=allows_full_copies(found), reserve=_reserve_of(found)
            )
        except Exception as error:
            text = f"Failed to create snapshot of volume {action.source}: {text_of(error)}"
            await self.telling.not_cut(content, error, EVENT_NOT_CUT, text)
            raise
        if snapshot is None:
            # What an earlier attempt said does not hold any more.
            if content.status is not None and content.status.error is not None:
                await self.telling.write_status(content, {"error": None})
            raise NotNow("its snapshot is still being made, and that goes on")
        content = await self._tell_of(content, snapshot.record)
        await self.telling.not_being_cut(content)

    async def _cut_soon(
        self, action: Cut, *, full_copies: bool, reserve: Reserve | None
    ) -> Volume | None:
        """The snapshot; None if that takes longer than an attempt waits."""
        namespace = action.content.spec.volume_snapshot_ref.namespace
        key = action.handle, action.source, namespace, full_copies, reserve
        if (cutting := self._late.pop(key, None)) is None:
            cutting = asyncio.create_task(
                self.volumes.snapshot(
                    action.handle,
                    action.source,
                    full_copies=full_copies,
                    reserve=reserve,
                    namespace=namespace,
                )
            )
            # Nobody may ask again.
            cutting.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.wait({cutting}, timeout=self.cut_seconds)
        finally:
            if not cutting.done():
                self._late[key] = cutting
        return cutting.result() if cutting.done() else None

    async def end(self) -> None:
        """Wait no longer for what is still being cut."""
        await ended(*self._late.values())

    async def _find(self, action: Find) -> None:
        content = await self.telling.own(action.content)
        try:
            snapshot = await self._there(action.handle)
        except Exception as error:
            if not (isinstance(error, NotNow) and is_ready(content)):
                text = f"Failed to check and update snapshot content: {text_of(error)}"
                await self.telling.tell(content, "find", EVENT_NOT_FOUND, text)
            raise
        await self._tell_of(content, snapshot.record)

    async def _there(self, handle: str) -> Volume:
        if (found := await self.volumes.find_snapshot(handle)) is None:
            raise Unknown(f"there is no snapshot {handle} here")
        if not found.is_readable:
            if found.fill is None:
                raise NotNow("it is not known yet how full its reserve is")
            raise Wrong(lost(found.record))
        return found

    async def _class_of(self, content: VolumeSnapshotContent) -> VolumeSnapshotClass | None:
        """None if it has none, or that is gone."""
        if name := content.spec.volume_snapshot_class_name:
            with contextlib.suppress(NotThere):
                return await self.client.get(SNAPSHOT_CLASSES, name)
        return None

    # --- reserves ------------------------------------------------------------------------------

    async def _tell_lost(self, action: TellLost) -> None:
        content = await self.telling.mark(action.content, RESERVE_ANNOTATION, "")
        self._warn(content, EVENT_LOST, action.reason)
        error = {"time": written(time.time()), "message": action.reason}
        await self.telling.write_status(content, {"readyToUse": False, "error": error})

    async def _tell_fill(self, action: TellFill) -> None:
        if action.filling:
            self._warn(action.content, EVENT_FILLING, action.filling)
        await self.telling.mark(action.content, RESERVE_ANNOTATION, action.filling)

    def _warn(self, content: VolumeSnapshotContent, reason: str, text: str) -> None:
        """On the VolumeSnapshot, too: who has that may not see contents."""
        ref, kind = content.spec.volume_snapshot_ref, SNAPSHOTS
        bound = ObjectRef(kind.kind, ref.name, ref.uid, ref.namespace, kind.api_version)
        self.telling.warn(content, reason, text, *([bound] if ref.uid else []))

    # --- removing ------------------------------------------------------------------------------

    async def _remove(self, action: Remove) -> None:
        content = await self.telling.own(action.content)
        try:
            await self.volumes.remove_snapshot(action.handle)
        except Exception as error:
            text = f"Failed to delete snapshot {action.handle}: {text_of(error)}"
            self.telling.say(content, "remove", EVENT_NOT_REMOVED, text)
            raise
        if content.status is not None:
            gone = ("snapshotHandle", "readyToUse", "creationTime", "restoreSize")
            content = await self.telling.write_status(content, dict.fromkeys(gone))
        await self.telling.without_finalizer(content)

    async def _tell_of(
        self, content: VolumeSnapshotContent, record: Record
    ) -> VolumeSnapshotContent:
        """Say on the content that its snapshot is there."""
        status: dict[str, Any] = {
            "snapshotHandle": record.name,
            "creationTime": record.cut_at,
            "restoreSize": record.size_bytes,
            "readyToUse": True,
            "error": None,
        }
        if record.group:
            # From now on its group decides about it.
            status["volumeGroupSnapshotHandle"] = record.group
        return await self.telling.write_status(content, status)


def _reserve_of(found: VolumeSnapshotClass | None) -> Reserve | None:
    """The class may have been made anew since the snapshot was begun, and be wrong by now. What was
    begun has its reserve on record."""
    with contextlib.suppress(ValueError):
        return reserve_of(found)
    return None
