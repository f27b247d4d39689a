"""Runs a cleaning as many short calls: each has a deadline, and a stop takes effect in between."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final, TypeVar, TypeVarTuple

from localvolume.cleaning.paces import CleaningPaces
from localvolume.cleaning.receipt import CleaningFailed, CleaningStopped, Progress
from localvolume.cleaning.target import Held, Target
from localvolume.host.block import blockdev
from localvolume.host.block.operations import DiscardLimits
from localvolume.host.process.workers import Hung, Workers

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

MIB: Final = 1 << 20

# How many seconds a stop waits for the running step.
_STOP_GRACE: Final = 1.0
_GONE = frozenset({errno.ENODEV, errno.ENXIO, errno.ENOMEDIUM})

OnRange = Callable[[int, int, int], None]
"""Does something with a device: its descriptor, and a range's start and length in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCalls:
    """What is asked of the kernel about a device. Each blocks, and raises OSError."""

    zero_out: OnRange = blockdev.zero_out
    discard: OnRange = blockdev.discard
    discard_limits: Callable[[int], DiscardLimits] = blockdev.discard_limits
    flush_buffers: Callable[[int], None] = blockdev.flush_buffers
    set_direct: Callable[[int, bool], bool] = blockdev.set_direct


@dataclass(eq=False)
class Pace:
    """The size of the next step, such that it takes about half a second on any disk.

    That is short enough to stop soon, and long enough that calls cost nothing. Sizes are powers of
    two in bytes, so they are multiples of any sector size and of usual discard granularities.
    """

    size: int = 64 * MIB
    _: KW_ONLY
    least: int = MIB
    most: int = 1024 * MIB

    def took(self, seconds: float) -> None:
        """Learn from a step of the full size."""
        if seconds < 0.25:
            self.size = min(self.most, self.size * 2)
        elif seconds > 1.0:
            self.size = max(self.least, self.size // 2)


class Steps:
    """Runs the steps of one cleaning and counts what they did. Belongs to the event loop."""

    def __init__(
        self,
        target: Target,
        workers: Workers,
        progress: Callable[[Progress], None],
        stop: asyncio.Event,
        timeout: float | None,
        paces: CleaningPaces | None = None,
        calls: DeviceCalls | None = None,
    ) -> None:
        self.held = Held(target)
        self.paces = paces or CleaningPaces()
        self.calls = calls or DeviceCalls()
        self.stop = stop
        self.done_bytes = 0
        self.total_bytes: int | None = None
        self.done_files = 0
        #: What is being done, for progress and for error messages.
        self.name = "opening"
        #: Whether a destructive call was begun.
        self.touched = False
        self.began = time.monotonic()
        self._workers = workers
        self._progress = progress
        self._timeout = timeout
        self._reported = self.began
        self._key = f"cleaning {target.path}"

    def check(self) -> None:
        """Raise CleaningStopped or CleaningFailed when it is time to end."""
        if self.stop.is_set():
            raise CleaningStopped(f"{self.held.target.path}: stopped while {self.name}")
        left = self.seconds_left()
        if left is not None and left <= 0:
            raise self.failed(f"not finished after {self._timeout:g} s")

    def seconds_left(self) -> float | None:
        """Until the timeout of the whole cleaning; None without one."""
        if self._timeout is None:
            return None
        return self._timeout - (time.monotonic() - self.began)

    def failed(self, what: str) -> CleaningFailed:
        """The error to raise; it says for which path and in which step."""
        return CleaningFailed(f"{self.held.target.path}: {self.name}: {what}", touched=self.touched)

    async def do(self, fn: Callable[[*Ts], R], *args: *Ts, seconds: float | None = None) -> R:
        """Run `fn` in a worker while the volume is held open; OSError comes through.

        `seconds` is its deadline (default: that of a step).
        Raises CleaningStopped soon after the stop, even if the call has not returned: the call is
        left behind, and holds the volume until it does. Raises CleaningFailed if the device hangs.
        """
        self.check()
        if seconds is None:
            seconds = self.paces.step
        call: asyncio.Future[R] = asyncio.ensure_future(
            self._workers.call(self._key, seconds, self.held.use, fn, *args)
        )
        call.add_done_callback(_seen)
        stopped = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait((call, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                await asyncio.wait((call,), timeout=_STOP_GRACE)
            if not call.done():
                self.check()
            result = await call
        except Hung as hung:
            raise self.failed(f"{hung}; to be tried again when it answers") from hung
        finally:
            stopped.cancel()
            call.cancel()
        self.report()
        return result

    async def refuse_others_until(self, ended: Callable[[], None]) -> None:
        """Have every further call for this volume refused until `ended` returns, in a thread."""
        with contextlib.suppress(Hung):  # expected: the call hangs until `ended` returns
            await self._workers.call(self._key, 0.01, ended)

    def report(self) -> None:
        """Report the progress, unless that was just done."""
        now = time.monotonic()
        if now - self._reported >= self.paces.progress:
            self._reported = now
            self._progress(Progress(self.done_bytes, self.total_bytes, self.done_files, self.name))

    async def open(self) -> None:
        """Open and check the volume. Raises CleaningRefused."""
        await self.do(self.held.open)

    async def sweep(self, pace: Pace, step: Callable[[int, int, int], None], *, begin: int) -> None:
        """Call `step(fd, start, length)` over the device from byte `begin` on.

        What lies before `begin` counts as done. From the first MiB on, steps begin on whole MiB.
        OSError comes through.
        """
        size = self.held.size_bytes
        aligned = max(begin, min(MIB, size))
        self.done_bytes += begin
        await self.sweep_range(pace, step, begin, aligned)
        await self.sweep_range(pace, step, aligned, size)

    async def sweep_range(
        self,
        pace: Pace,
        step: Callable[[int, int, int], None],
        start: int,
        end: int,
        *,
        unit: int = 1,
    ) -> None:
        """The same from byte `start` to `end`; each step but the last is whole `unit`s of bytes."""
        while start < end:
            full = min(pace.size, self.paces.step_bytes)
            full = max(full // unit, 1) * unit
            length = min(full, end - start)
            began = time.monotonic()
            await self.do(step, self.held.fd, start, length)
            if length == full:
                pace.took(time.monotonic() - began)
            start += length
            self.done_bytes += length

    def explain(self, error: OSError) -> CleaningFailed:
        """What an error of the device means for the cleaning."""
        if error.errno in _GONE:
            return self.failed(f"the device is gone ({error.strerror})")
        return self.failed(f"the device answers: {error.strerror or error}")

    async def close(self) -> None:
        """Give the volume up; returns when it is closed, or when that hangs."""
        try:
            await self._workers.call(self._key, self.paces.step, self.held.close)
        except Hung:
            # A call that is still stuck closes the volume when it returns. The thread is for the
            # case that no call is stuck, but the closing itself would block the loop.
            threading.Thread(target=self._close_late, daemon=True).start()

    def _close_late(self) -> None:
        with contextlib.suppress(OSError):  # nobody is left to be told
            self.held.close()


def _seen(call: asyncio.Future[R]) -> None:
    """Takes the exception of a call left behind, so that asyncio does not log it: nobody waits."""
    if not call.cancelled():
        call.exception()
