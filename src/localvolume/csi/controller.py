"""The Controller service of CSI: volumes of this node are made, removed, grown, listed, judged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from localvolume.csi import capabilities, limits, requests, snapshots
from localvolume.csi.capabilities import Kind, NotHad
from localvolume.csi.healthstatus import volume_health
from localvolume.csi.wire import messages
from localvolume.csi.wire.errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
)
from localvolume.dynamic.calls import Volume, Volumes

Handler = Callable[[Any], Awaitable[Any]]

SERVED: Final = (
    "CREATE_DELETE_VOLUME",
    "LIST_VOLUMES",
    "GET_CAPACITY",
    "EXPAND_VOLUME",
    "GET_VOLUME",
    "SINGLE_NODE_MULTI_WRITER",
    "GET_VOLUME_HEALTH",
    "LIST_VOLUME_HEALTH",
    "CLONE_VOLUME",
    "MODIFY_VOLUME",
    *snapshots.SERVED,
)

_NOBODYS_CONTEXT: Final = frozenset({"storage.kubernetes.io/csiProvisionerIdentity"})
"""Entries of a volume's context that external-provisioner adds. We put none in it."""


class ControllerService:
    """Reads the requests, asks `volumes`, and answers. Raises CallFailed and calls.Refused."""

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes
        self.handlers: Final[Mapping[str, Handler]] = {
            "ControllerGetCapabilities": self._capabilities,
            "CreateVolume": self._create,
            "DeleteVolume": self._delete,
            "ValidateVolumeCapabilities": self._validate,
            "ListVolumes": self._list,
            "GetCapacity": self._capacity,
            "ControllerGetVolume": self._get,
            "ControllerExpandVolume": self._expand,
            "ControllerModifyVolume": self._modify,
            "ControllerGetVolumeHealth": self._health,
            "ControllerListVolumeHealth": self._list_health,
            **snapshots.SnapshotCalls(volumes).handlers,
        }

    async def _capabilities(self, _request: Any) -> Any:
        return messages.ControllerGetCapabilitiesResponse(
            capabilities=[{"rpc": {"type": name}} for name in SERVED]
        )

    async def _create(self, request: Any) -> Any:
        limits.check(request)
        wanted = requests.wanted(request)
        node = self._volumes.node()
        if not requests.may_be_here(request.accessibility_requirements, node):
            raise ResourceExhausted(
                f"volumes are made on node {node.name}, and accessibility_requirements asks for "
                "others"
            )
        volume = await self._volumes.create(wanted)
        size = volume.record.size_bytes
        if wanted.limit_bytes and size > wanted.limit_bytes:
            # It has been grown since.
            raise AlreadyExists(
                f"volume {wanted.name} is there and has {size} bytes, more than limit_bytes "
                f"{wanted.limit_bytes}"
            )
        told = self._told(volume)
        if wanted.source:
            # Callers remove a volume again that does not say where its content is from.
            told.content_source.CopyFrom(request.volume_content_source)
        return messages.CreateVolumeResponse(volume=told)

    async def _delete(self, request: Any) -> Any:
        limits.check(request)
        if (name := requests.handle_in(request)) is not None:
            await self._volumes.remove(name)
        return messages.DeleteVolumeResponse()

    async def _validate(self, request: Any) -> Any:
        limits.check(request)
        name = requests.handle_in(request)
        if not request.volume_capabilities:
            raise InvalidArgument("volume_capabilities is missing")
        volume = await self._found(name, request)
        if why := _unconfirmed(request, volume):
            return messages.ValidateVolumeCapabilitiesResponse(message=limits.short(why))
        return messages.ValidateVolumeCapabilitiesResponse(
            confirmed={
                "volume_context": dict(request.volume_context),
                "volume_capabilities": request.volume_capabilities,
                "parameters": dict(request.parameters),
            }
        )

    async def _list(self, request: Any) -> Any:
        limits.check(request)
        known = {one.record.name: one for one in self._volumes.all()}
        names, token = requests.page(sorted(known), request)
        return messages.ListVolumesResponse(
            entries=[{"volume": self._told(known[name])} for name in names], next_token=token
        )

    async def _capacity(self, request: Any) -> Any:
        limits.check(request)
        kind = Kind()
        if request.volume_capabilities:
            try:
                kind = capabilities.kind_of(request.volume_capabilities)
            except NotHad:
                return _room(0, 0)
        parameters = requests.parameters_of(request)
        fs_type = requests.fs_type_of(kind, parameters)
        if request.HasField("accessible_topology") and not requests.is_here(
            request.accessible_topology, self._volumes.node()
        ):
            return _room(0, 0)
        room = self._volumes.room(parameters, kind.volume_mode, fs_type)
        return _room(room.available_bytes, room.largest_bytes)

    async def _get(self, request: Any) -> Any:
        limits.check(request)
        volume = await self._found(requests.handle_in(request), request)
        return messages.ControllerGetVolumeResponse(volume=self._told(volume), status={})

    async def _expand(self, request: Any) -> Any:
        limits.check(request)
        name = requests.handle_in(request)
        if not request.HasField("capacity_range"):
            raise InvalidArgument("capacity_range is missing")
        size, limit = requests.sizes(request.capacity_range)
        volume = await self._found(name, request)
        asked = request.volume_capability.WhichOneof("access_type")
        if asked is not None and (asked == "block") != (volume.record.volume_mode == "Block"):
            raise InvalidArgument(
                f"volume {name} has volume mode {volume.record.volume_mode}, which is not what "
                "volume_capability says"
            )
        grown = await self._volumes.grow(volume.record.name, size, limit)
        # The agent grows the filesystem too, also while it is mounted: the node has nothing to do.
        return messages.ControllerExpandVolumeResponse(
            capacity_bytes=grown.record.size_bytes, node_expansion_required=False
        )

    async def _modify(self, request: Any) -> Any:
        limits.check(request)
        name = requests.handle_in(request)
        attributes = requests.attributes_in(request)
        volume = await self._found(name, request)
        await self._volumes.modify(volume.record.name, attributes)
        return messages.ControllerModifyVolumeResponse()

    async def _health(self, request: Any) -> Any:
        limits.check(request)
        volume = await self._found(requests.handle_in(request), request)
        name = volume.record.name
        return messages.ControllerGetVolumeHealthResponse(
            volume_health=volume_health(name, self._volumes.problems(name))
        )

    async def _list_health(self, request: Any) -> Any:
        limits.check(request)
        problems = {
            one.record.name: found
            for one in self._volumes.all()
            if (found := self._volumes.problems(one.record.name))
        }
        names, token = requests.page(sorted(problems), request)
        return messages.ControllerListVolumeHealthResponse(
            entries=[volume_health(name, problems[name]) for name in names], next_token=token
        )

    async def _found(self, name: str | None, request: Any) -> Volume:
        volume = None if name is None else await self._volumes.find(name)
        if volume is None:
            raise NotFound(f"there is no volume {request.volume_id}")
        return volume

    def _told(self, volume: Volume) -> Any:
        """The volume as answers have it. Its context is empty: it may move to another node."""
        return messages.Volume(
            volume_id=volume.record.name,
            capacity_bytes=volume.record.size_bytes,
            accessible_topology=[requests.topology_of(self._volumes.node())],
        )


def _unconfirmed(request: Any, volume: Volume) -> str:
    """Why what is asked cannot be confirmed of the volume; "" if all of it can."""
    try:
        kind = capabilities.kind_of(request.volume_capabilities)
    except NotHad as error:
        return str(error)
    if why := capabilities.misfit(kind, volume.record):
        return why
    if foreign := sorted(request.volume_context.keys() - _NOBODYS_CONTEXT):
        return f"its context has no {', '.join(foreign)}"
    if requests.parameters_of(request) or request.mutable_parameters:
        return "it is not known which parameters it was made with: ask without any"
    return ""


def _room(available: int, largest: int) -> Any:
    return messages.GetCapacityResponse(
        available_capacity=available, maximum_volume_size={"value": largest}
    )
