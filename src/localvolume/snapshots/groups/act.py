"""Does one action for a VolumeGroupSnapshotContent: cuts, finds or removes a group, and tells it.

The steps and their order are those of a single snapshot's content: see ``snapshots.act``.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import Any, Final

from localvolume.dynamic.calls import Group, NotNow, Unknown, Volumes, Wrong
from localvolume.kube.client import Client
from localvolume.kube.errors import NotThere
from localvolume.kube.kinds import GROUP_CLASSES
from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent
from localvolume.snapshots.groups.plan import (
    Action,
    Cut,
    Find,
    LetGo,
    Refuse,
    Remove,
    Tidy,
    fault_of_class,
    is_to_go,
)
from localvolume.snapshots.telling import Telling, text_of
from localvolume.volumes.moments import written
from localvolume.volumes.snapshots import GROUP_BEING_CREATED, is_ready

log = logging.getLogger(__name__)

EVENT_NOT_CUT: Final = "GroupSnapshotCreationFailed"
EVENT_NOT_FOUND: Final = "GroupSnapshotContentCheckandUpdateFailed"
EVENT_NOT_REMOVED: Final = "GroupSnapshotDeleteError"
"""csi-snapshotter's reasons, to the letter."""


@dataclass(eq=False, kw_only=True)
class Acts:
    """`telling` writes on contents."""

    client: Client
    volumes: Volumes
    telling: Telling[VolumeGroupSnapshotContent]

    async def act(self, action: Action) -> None:
        """Raises calls.Refused, ApiError, and what a pool raises."""
        log.info("group content %s: %s: %s", action.name, type(action).__name__, action.reason)
        match action:
            case Cut():
                await self._cut(action)
            case Find():
                await self._find(action)
            case Tidy():
                await self.telling.not_being_cut(action.content)
            case Remove():
                await self._remove(action)
            case LetGo():
                await self.telling.let_go(action.content, spread=action.by_anyone)
            case Refuse():
                content = await self.telling.own(action.content)
                if is_to_go(content):
                    self.telling.say(content, "remove", EVENT_NOT_REMOVED, action.reason)
                else:
                    await self.telling.tell(content, "cut", EVENT_NOT_CUT, action.reason)
                raise Wrong(action.reason)
            case _:
                raise NotImplementedError(action)

    async def _cut(self, action: Cut) -> None:
        content = action.content
        if GROUP_BEING_CREATED not in content.metadata.annotations and (
            fault := await self._fault_of_class(content)
        ):
            content = await self.telling.own(content)
            text = f"Failed to create group snapshot: {fault}"
            await self.telling.tell(content, "cut", EVENT_NOT_CUT, text)
            raise Wrong(fault)
        content = await self.telling.being_cut(content)
        try:
            group = await self.volumes.cut_group(
                action.handle,
                action.sources,
                namespace=content.spec.volume_group_snapshot_ref.namespace,
            )
        except Exception as error:
            volumes = ", ".join(action.sources)
            text = f"Failed to create group snapshot of volumes {volumes}: {text_of(error)}"
            await self.telling.not_cut(content, error, EVENT_NOT_CUT, text)
            raise
        content = await self._tell_of(content, group, all_of_it=True)
        await self.telling.not_being_cut(content)

    async def _find(self, action: Find) -> None:
        content = await self.telling.own(action.content)
        try:
            group = await self._there(action)
        except Exception as error:
            if not (isinstance(error, NotNow) and is_ready(content)):
                text = f"Failed to check and update group snapshot content: {text_of(error)}"
                await self.telling.tell(content, "find", EVENT_NOT_FOUND, text)
            raise
        await self._tell_of(content, group, all_of_it=False)

    async def _there(self, action: Find) -> Group:
        found = await self.volumes.find_group(action.handle)
        if found is None:
            raise Unknown(f"there is no group {action.handle} here")
        if (has := {one.record.name for one in found.members}) != set(action.snapshots):
            raise Wrong(
                f"the group has the snapshots {', '.join(sorted(has))}, and others are named"
            )
        return found

    async def _fault_of_class(self, content: VolumeGroupSnapshotContent) -> str:
        name, found = content.spec.volume_group_snapshot_class_name, None
        if name:
            with contextlib.suppress(NotThere):
                found = await self.client.get(GROUP_CLASSES, name)
        return fault_of_class(content, found)

    async def _remove(self, action: Remove) -> None:
        content = await self.telling.own(action.content)
        try:
            await self.volumes.remove_group(action.handle, action.snapshots)
        except Exception as error:
            text = f"Failed to delete group snapshot {action.handle}: {text_of(error)}"
            self.telling.say(content, "remove", EVENT_NOT_REMOVED, text)
            raise
        if content.status is not None:
            gone = ("volumeGroupSnapshotHandle", "readyToUse", "creationTime", "error")
            content = await self.telling.write_status(content, dict.fromkeys(gone))
        await self.telling.without_finalizer(content)

    async def _tell_of(
        self, content: VolumeGroupSnapshotContent, group: Group, *, all_of_it: bool
    ) -> VolumeGroupSnapshotContent:
        """Say on the content that its group is there.

        `all_of_it`: the snapshot-controller makes an object of each snapshot that is told of.
        """
        status: dict[str, Any] = {
            "volumeGroupSnapshotHandle": group.name,
            "creationTime": written(group.cut_at / 1e9),
            "readyToUse": True,
            "error": None,
        }
        if all_of_it:
            status["volumeSnapshotInfoList"] = [
                {
                    "volumeHandle": one.record.snapshot_of,
                    "snapshotHandle": one.record.name,
                    "creationTime": one.record.cut_at,
                    "readyToUse": True,
                    "restoreSize": one.record.size_bytes,
                }
                for one in group.members
            ]
        return await self.telling.write_status(content, status)
