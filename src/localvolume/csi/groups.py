"""The GroupController service of CSI: snapshots of several volumes, cut at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from localvolume.csi import limits, requests
from localvolume.csi.snapshots import moment, told
from localvolume.csi.wire import messages
from localvolume.csi.wire.errors import InvalidArgument, NotFound
from localvolume.csi.wire.server import Handle
from localvolume.dynamic.calls import Group, Volumes

SERVED: Final = ("CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT",)

_ID: Final = "group_snapshot_id"


class GroupControllerService:
    """Reads the requests, asks `volumes`, and answers. Raises CallFailed and calls.Refused."""

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes
        self.handlers: Final[Mapping[str, Handle]] = {
            "GroupControllerGetCapabilities": self._capabilities,
            "CreateVolumeGroupSnapshot": self._create,
            "DeleteVolumeGroupSnapshot": self._delete,
            "GetVolumeGroupSnapshot": self._get,
        }

    async def _capabilities(self, _request: Any) -> Any:
        return messages.GroupControllerGetCapabilitiesResponse(
            capabilities=[{"rpc": {"type": name}} for name in SERVED]
        )

    async def _create(self, request: Any) -> Any:
        limits.check(request)
        wanted = requests.wanted_group(request)
        group = await self._volumes.cut_group(wanted.name, wanted.sources)
        return messages.CreateVolumeGroupSnapshotResponse(group_snapshot=self._told(group))

    async def _delete(self, request: Any) -> Any:
        limits.check(request)
        if (name := requests.handle_in(request, _ID)) is not None:
            await self._volumes.remove_group(name, set(request.snapshot_ids))
        return messages.DeleteVolumeGroupSnapshotResponse()

    async def _get(self, request: Any) -> Any:
        limits.check(request)
        name = requests.handle_in(request, _ID)
        group = None if name is None else await self._volumes.find_group(name)
        if group is None:
            raise NotFound(f"there is no group {request.group_snapshot_id}")
        has, asked = {one.record.name for one in group.members}, set(request.snapshot_ids)
        if has != asked:
            raise InvalidArgument(
                f"the group has the snapshots {', '.join(sorted(has))}, and snapshot_ids names"
                f" {', '.join(sorted(asked)) or 'none'}"
            )
        return messages.GetVolumeGroupSnapshotResponse(group_snapshot=self._told(group))

    def _told(self, group: Group) -> Any:
        """The group as answers have it. It is complete from the moment that it is cut."""
        node = self._volumes.node()
        return messages.VolumeGroupSnapshot(
            group_snapshot_id=group.name,
            snapshots=[told(one, node) for one in group.members],
            creation_time=moment(group.cut_at),
            ready_to_use=True,
        )
