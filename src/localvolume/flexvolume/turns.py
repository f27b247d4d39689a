"""One thing at a time for each volume: calls of the kubelet, the collector, and growth take turns.

A call to the host that is stuck in the kernel holds up only its own volume (`host.workers`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from localvolume.host.process.workers import Hung, Workers

R = TypeVar("R")


class Turn:
    """The right to do something with one volume, until `deadline` (the loop's time)."""

    def __init__(self, workers: Workers, name: str, deadline: float) -> None:
        self._workers = workers
        self._name = name
        self.deadline = deadline

    async def call(self, work: Callable[..., R], *args: Any) -> R:
        """Run `work` in a worker. Raises what it raises; Hung at the deadline, or while an earlier
        call for this volume, left behind at its deadline, still runs."""
        seconds = self.deadline - asyncio.get_running_loop().time()
        if seconds <= 0:
            raise Hung(self._name, 0.0, f"{self._name}: no time is left")
        # Must not be cancelled half way: another caller would have the turn while it still runs.
        inner = asyncio.ensure_future(
            self._workers.call(f"flexvolume {self._name}", seconds, work, *args)
        )
        return await _to_its_end(inner)


async def _to_its_end(inner: asyncio.Future[R]) -> R:
    cancelled = False
    while not inner.done():
        try:
            await asyncio.shield(inner)
        except asyncio.CancelledError:
            if inner.cancelled():
                raise
            cancelled = True
        except BaseException:  # noqa: BLE001 - it is raised below, from the call itself
            break
    if cancelled:
        inner.exception()
        raise asyncio.CancelledError
    return inner.result()


class Turns:
    """The turns of all volumes of one driver."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    async def call(self, name: str, seconds: float, work: Callable[..., R], *args: Any) -> R:
        """One call, in a turn of its own. Raises as `of` and `Turn.call` do."""
        async with self.of(name, seconds) as turn:
            return await turn.call(work, *args)

    @contextlib.asynccontextmanager
    async def of(self, name: str, seconds: float) -> AsyncIterator[Turn]:
        """Wait for the volume's turn, which ends with the block. Raises Hung after `seconds`."""
        deadline = asyncio.get_running_loop().time() + seconds
        lock, users = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = (lock, users + 1)
        try:
            try:
                async with asyncio.timeout(seconds):
                    await lock.acquire()
            except TimeoutError:
                raise Hung(
                    name, seconds, f"{name}: an earlier call about it still goes on"
                ) from None
            try:
                yield Turn(self._workers, name, deadline)
            finally:
                lock.release()
        finally:
            lock, users = self._locks[name]
            if users == 1:
                del self._locks[name]
            else:
                self._locks[name] = (lock, users - 1)
