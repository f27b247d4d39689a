"""The calls of the Controller service for snapshots: they are cut, removed, listed and found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from localvolume.csi import limits, requests
from localvolume.csi.wire import messages
from localvolume.csi.wire.errors import NotFound, ResourceExhausted
from localvolume.csi.wire.server import Handle
from localvolume.dynamic.calls import Volume, Volumes
from localvolume.volumes.manifest import NodeFacts

SERVED: Final = ("CREATE_DELETE_SNAPSHOT", "LIST_SNAPSHOTS", "GET_SNAPSHOT")
"""Whatever the pools are: which of them can is answered to each call."""

_NANOS: Final = 1_000_000_000


class SnapshotCalls:
    """A part of the Controller service. Raises CallFailed and calls.Refused."""

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes
        self.handlers: Final[Mapping[str, Handle]] = {
            "CreateSnapshot": self._create,
            "DeleteSnapshot": self._delete,
            "ListSnapshots": self._list,
            "GetSnapshot": self._get,
        }

    async def _create(self, request: Any) -> Any:
        limits.check(request)
        wanted = requests.wanted_snapshot(request)
        node = self._volumes.node()
        if not requests.may_be_here(request.accessibility_requirements, node):
            raise ResourceExhausted(
                f"snapshots are cut on node {node.name}, and accessibility_requirements asks for "
                "others"
            )
        cut = await self._volumes.snapshot(
            wanted.name,
            wanted.source,
            full_copies=wanted.full_copies,
            reserve=wanted.reserve,
        )
        return messages.CreateSnapshotResponse(snapshot=self._told(cut))

    async def _delete(self, request: Any) -> Any:
        limits.check(request)
        if (name := requests.handle_in(request, "snapshot_id")) is not None:
            await self._volumes.remove_snapshot(name)
        return messages.DeleteSnapshotResponse()

    async def _list(self, request: Any) -> Any:
        limits.check(request)
        if request.snapshot_id:
            found = await self._find(requests.handle_in(request, "snapshot_id"))
            known = [] if found is None else [found]
        else:
            known = list(self._volumes.snapshots())
        source = request.source_volume_id
        chosen = {one.record.name: one for one in known if source in ("", one.record.snapshot_of)}
        names, token = requests.page(sorted(chosen), request)
        return messages.ListSnapshotsResponse(
            entries=[{"snapshot": self._told(chosen[name])} for name in names], next_token=token
        )

    async def _get(self, request: Any) -> Any:
        limits.check(request)
        found = await self._find(requests.handle_in(request, "snapshot_id"))
        if found is None:
            raise NotFound(f"there is no snapshot {request.snapshot_id}")
        return messages.GetSnapshotResponse(snapshot=self._told(found))

    async def _find(self, name: str | None) -> Volume | None:
        return None if name is None else await self._volumes.find_snapshot(name)

    def _told(self, snapshot: Volume) -> Any:
        return told(snapshot, self._volumes.node())


def told(snapshot: Volume, node: NodeFacts) -> Any:
    """The snapshot as answers have it. It is complete from the moment that it is cut, and ready
    unless its content is lost."""
    record = snapshot.record
    return messages.Snapshot(
        size_bytes=record.size_bytes,
        snapshot_id=record.name,
        source_volume_id=record.snapshot_of,
        creation_time=moment(record.cut_at),
        ready_to_use=snapshot.is_readable,
        group_snapshot_id=record.group,
        accessible_topology=[requests.topology_of(node)],
    )


def moment(nanoseconds: int) -> dict[str, int]:
    """A moment as answers have it."""
    seconds, nanos = divmod(nanoseconds, _NANOS)
    return {"seconds": seconds, "nanos": nanos}
