"""Calls under way: an equal call joins the one that runs, another for the same volume is aborted.

The work of a call runs in a task of its own, which goes on if the caller gives up: the host's work
must not be cut off half-way, and a repeated call gets its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from localvolume.csi.wire.errors import Aborted, Unavailable

_KEYS: Final = {
    "CreateVolume": "name",
    "DeleteVolume": "volume_id",
    "ControllerPublishVolume": "volume_id",
    "ControllerUnpublishVolume": "volume_id",
    "ControllerExpandVolume": "volume_id",
    "ControllerModifyVolume": "volume_id",
    "CreateSnapshot": "name",
    "DeleteSnapshot": "snapshot_id",
    "CreateVolumeGroupSnapshot": "name",
    "DeleteVolumeGroupSnapshot": "group_snapshot_id",
    "NodeStageVolume": "volume_id",
    "NodeUnstageVolume": "volume_id",
    "NodePublishVolume": "volume_id",
    "NodeUnpublishVolume": "volume_id",
    "NodeExpandVolume": "volume_id",
}
"""The field that says what a call changes, by RPC; the others change nothing."""


def key_of(rpc: str, request: Any) -> str:
    """What the call changes; "" if nothing, or if it does not say what."""
    field = _KEYS.get(rpc)
    return "" if field is None else str(getattr(request, field))


@dataclass(frozen=True, slots=True)
class Call:
    """One call under way. Its task goes on whoever stops waiting for it."""

    rpc: str
    request: Any
    task: asyncio.Future[Any]

    async def result(self) -> Any:
        """What the work returns. Raises what it raises, and Unavailable if it was cancelled."""
        try:
            return await asyncio.shield(self.task)
        except asyncio.CancelledError:
            if self.task.cancelled():
                raise Unavailable("this agent is ending: repeat the call") from None
            raise


class UnderWay:
    """The calls that one process works at."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}
        self._tasks: set[asyncio.Future[Any]] = set()

    def begin(self, rpc: str, request: Any, work: Callable[[Any], Awaitable[Any]]) -> Call:
        """Begin the work, or join an equal call that does it. Raises Aborted."""
        key = key_of(rpc, request)
        call = self._calls.get(key) if key else None
        if call is None:
            call = Call(rpc, request, asyncio.ensure_future(work(request)))
            self._tasks.add(call.task)
            call.task.add_done_callback(self._over)
            if key:
                self._calls[key] = call
                call.task.add_done_callback(lambda _: self._calls.pop(key))
        elif (call.rpc, call.request) != (rpc, request):
            raise Aborted(f"{key}: {call.rpc} is under way; repeat {rpc} when that has ended")
        return call

    def _over(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # asked for, or asyncio complains where nobody waits any more

    async def end(self, seconds: float) -> None:
        """Give all calls that long to end, then cancel them, and give them as long again."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=seconds)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=seconds)
