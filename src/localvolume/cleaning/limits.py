"""How many volumes of one disk are cleaned at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Device:
    running: int = 0
    waiting: deque[tuple[int, asyncio.Future[None]]] = field(default_factory=deque)


class DeviceLimits:
    """Limits how many cleanings run at a time per key; first come, first served.

    The key names the disk under the volume, so that two partitions of one disk share a limit:
    two cleanings of a rotating disk at once are slower than one after the other.
    """

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}

    @asynccontextmanager
    async def hold(
        self, key: str, limit: int | None = None, *, running: bool = False
    ) -> AsyncIterator[None]:
        """Wait for a place; leaving the block (also by cancellation) gives it to the next.

        `limit`: this cleaning may begin while fewer than that many run (default: one).
        `running`: this cleaning runs already, elsewhere: it is counted and never waits.
        """
        limit = 1 if limit is None else max(1, limit)
        device = self._devices.setdefault(key, _Device())
        if not running and (device.waiting or device.running >= limit):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            device.waiting.append((limit, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    device.running -= 1  # its turn came at the same moment: pass it on
                self._next(key, device)
                raise
        else:
            device.running += 1
        try:
            yield
        finally:
            device.running -= 1
            self._next(key, device)

    def _next(self, key: str, device: _Device) -> None:
        while device.waiting:
            limit, turn = device.waiting[0]
            if not turn.done():
                if device.running >= limit:
                    return
                device.running += 1
                turn.set_result(None)
            device.waiting.popleft()
        if not device.running and self._devices.get(key) is device:
            del self._devices[key]  # disks come and go; nothing is kept of an idle one
