"""The SnapshotMetadata service of CSI: which bytes of a snapshot are data, and which changed.

Both calls answer with a stream. It is made page by page, and nothing is held between two pages: a
snapshot may be removed meanwhile, which ends the stream with NOT_FOUND.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from localvolume.backends.model import Blocks
from localvolume.csi import limits, requests
from localvolume.csi.wire import messages
from localvolume.csi.wire.errors import InvalidArgument, NotFound, OutOfRange
from localvolume.csi.wire.server import Handle
from localvolume.dynamic.calls import Volume, Volumes

_MOST: Final = 1000
"""Ranges in one message: some 20 KB, of the 4 MiB that callers take."""


class SnapshotMetadataService:
    """Answers which blocks to copy. Raises CallFailed and calls.Refused."""

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes
        self.handlers: Final[Mapping[str, Handle]] = {
            "GetMetadataAllocated": self._allocated,
            "GetMetadataDelta": self._delta,
        }

    async def _allocated(self, request: Any) -> AsyncIterator[Any]:
        most = _checked(request)
        snapshot = await self._found(request, "snapshot_id")
        first = await self._first(snapshot, None, request)
        return self._told(
            snapshot, None, first, most=most, kind=messages.GetMetadataAllocatedResponse
        )

    async def _delta(self, request: Any) -> AsyncIterator[Any]:
        most = _checked(request)
        # Whether either is named at all comes before whether it is there.
        requests.handle_in(request, "target_snapshot_id")
        base = await self._found(request, "base_snapshot_id")
        target = await self._found(request, "target_snapshot_id")
        if (base.record.snapshot_of, base.pool) != (target.record.snapshot_of, target.pool):
            raise InvalidArgument(
                f"{base.record.name} is a snapshot of {base.record.snapshot_of}, and"
                f" {target.record.name} one of {target.record.snapshot_of}"
            )
        first = await self._first(target, base, request)
        return self._told(target, base, first, most=most, kind=messages.GetMetadataDeltaResponse)

    async def _found(self, request: Any, field: str) -> Volume:
        name = requests.handle_in(request, field)
        found = None if name is None else await self._volumes.find_snapshot(name)
        if found is None:
            raise NotFound(f"there is no snapshot {getattr(request, field)} on this node")
        return found

    async def _first(self, snapshot: Volume, base: Volume | None, request: Any) -> Blocks:
        start = request.starting_offset
        if start < 0:
            raise OutOfRange("starting_offset is negative")
        page = await self._volumes.blocks(snapshot, base, start)
        if start > page.total_bytes:
            raise OutOfRange(
                f"starting_offset {start} is beyond the end: the snapshot has"
                f" {page.total_bytes} bytes"
            )
        return page

    async def _told(
        self, snapshot: Volume, base: Volume | None, page: Blocks, *, most: int, kind: Any
    ) -> AsyncIterator[Any]:
        """The messages of that kind, from that page on."""

        def message(ranges: list[tuple[int, int]]) -> Any:
            return kind(
                block_metadata_type="VARIABLE_LENGTH",
                volume_capacity_bytes=page.total_bytes,
                block_metadata=[{"byte_offset": at, "size_bytes": size} for at, size in ranges],
            )

        # The size of the volume is told even if nothing else is.
        told = False
        while True:
            for first in range(0, len(page.ranges), most):
                yield message(list(page.ranges[first : first + most]))
                told = True
            if page.until >= page.total_bytes:
                break
            page = await self._volumes.blocks(snapshot, base, page.until)
        if not told:
            yield message([])


def _checked(request: Any) -> int:
    """How many ranges a message may have. Raises InvalidArgument."""
    limits.check(request)
    if request.max_results < 0:
        raise InvalidArgument("max_results is negative")
    return min(request.max_results or _MOST, _MOST)
