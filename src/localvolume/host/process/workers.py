"""Blocking host calls in threads that can be given up: a dead disk blocks its key, not the loop.

A system call that hangs in the kernel cannot be interrupted. So a call that misses its deadline is
left behind with its thread, and another thread takes its place. Two rules limit this:

- While a key has a call left behind, further calls of that key fail at once and take no thread.
- At most ``abandoned`` threads are replaced. Beyond that a hanging call costs one of the ``limit``
  working threads until it returns: other keys go on with those that remain, and there are never
  more than ``limit + abandoned`` threads. With none left, calls fail at once with ``AllHung``.

The threads are daemons and nothing joins them: a hanging call never holds up the process's end.
"""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

R = TypeVar("R")

#: Seconds without any call after which the waiting threads end, so that an idle agent keeps none.
IDLE_SECONDS = 30.0


class Hung(Exception):
    """A host call missed its deadline, or an earlier one of the same key still has not returned.

    What it was about cannot be used now; ask again later under the same key.
    """

    def __init__(self, key: str, seconds: float, message: str = "") -> None:
        super().__init__(message or f"{key}: no answer from the host within {seconds:g} s")
        self.key = key
        #: The deadline that was missed, in seconds.
        self.seconds = seconds


UNREADABLE: Final = (Hung, OSError)
"""How the host fails whoever reads it."""


class AllHung(Hung):
    """Every worker thread is stuck in some earlier call: this one was not even begun."""


@dataclass(eq=False, slots=True)
class _Job(Generic[R]):
    """One call: made, begun and ended on the loop's thread; only ``work`` runs on another."""

    loop: asyncio.AbstractEventLoop
    key: str
    seconds: float
    fn: Callable[..., R]
    args: tuple[Any, ...]
    future: asyncio.Future[R] = field(init=False)
    deadline: asyncio.TimerHandle | None = field(default=None, init=False)
    left_behind: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.future = self.loop.create_future()


class Workers:
    """A few threads for blocking calls of one event loop.

    ``limit`` calls run at once, further ones wait for their turn; a deadline counts from when the
    call begins to run. Choose keys by what may hang: one per entry, device or mount. After
    ``idle_seconds`` without any call, waiting threads end.
    """

    def __init__(
        self, limit: int = 8, *, abandoned: int = 64, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        if limit < 1 or abandoned < 0:
            raise ValueError("limit must be at least 1 and abandoned at least 0")
        self._limit = limit
        self._abandoned = abandoned
        self._idle_seconds = idle_seconds
        self._waiting: deque[_Job[Any]] = deque()
        self._queue: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._running = 0
        self._idle = 0
        self._left_behind: Counter[str] = Counter()
        self._trim: asyncio.TimerHandle | None = None
        #: Calls begun since the start, and those of them that missed their deadline.
        self.calls_total = 0
        self.hung_total = 0

    @property
    def running(self) -> int:
        """Calls running within their deadline."""
        return self._running

    @property
    def waiting(self) -> int:
        """Calls waiting for a thread."""
        return sum(not job.future.done() for job in self._waiting)

    @property
    def hung(self) -> Mapping[str, int]:
        """How many calls missed their deadline and still have not returned, by key."""
        return dict(self._left_behind)

    async def call(self, key: str, seconds: float, fn: Callable[..., R], *args: Any) -> R:
        """Run ``fn(*args)`` in a thread and return what it returns, or raise what it raises.

        Raises ``Hung`` when it takes longer than ``seconds`` or when an earlier call of this key
        is still stuck, ``AllHung`` when no thread is left. Cancelling ends the waiting, not ``fn``,
        which keeps its place until it returns or its deadline passes.
        """
        self._refuse(key, seconds)
        job = _Job(asyncio.get_running_loop(), key, seconds, fn, args)
        self._waiting.append(job)
        self._begin()
        return await job.future

    def close(self) -> None:
        """Let the idle threads end; those stuck in a call end when it returns."""
        if self._trim is not None:
            self._trim.cancel()
        self._end_idle()

    def _room(self) -> int:
        """How many calls may run at once: ``limit``, less the threads that were not replaced."""
        return self._limit - max(0, self._left_behind.total() - self._abandoned)

    def _refuse(self, key: str, seconds: float) -> None:
        if self._left_behind[key]:
            raise Hung(key, seconds, f"{key}: an earlier call to the host is still stuck")
        if self._room() < 1:
            stuck = self._left_behind.total()
            raise AllHung(key, seconds, f"{key}: all {stuck} worker threads are stuck")

    def _begin(self) -> None:
        """Start waiting calls as long as there is room; settle those that can only fail."""
        while self._waiting and (self._running < self._room() or self._room() < 1):
            job = self._waiting.popleft()
            if job.future.done():  # cancelled while it waited
                continue
            try:
                self._refuse(job.key, job.seconds)
            except Hung as refused:
                job.future.set_exception(refused)
                continue
            self._running += 1
            self.calls_total += 1
            if self._trim is not None:
                self._trim.cancel()
                self._trim = None
            if self._idle:
                self._idle -= 1
            else:
                try:
                    threading.Thread(target=self._work, daemon=True).start()
                except RuntimeError as error:  # the system gives no more threads
                    self._running -= 1
                    job.future.set_exception(error)
                    continue
            self._queue.put(job)
            job.deadline = job.loop.call_later(job.seconds, self._missed, job)

    def _missed(self, job: _Job[Any]) -> None:
        """Leave the call behind: its thread does not count until it returns."""
        job.left_behind = True
        self._running -= 1
        self._left_behind[job.key] += 1
        self.hung_total += 1
        if not job.future.done():
            job.future.set_exception(Hung(job.key, job.seconds))
        self._begin()

    def _returned(self, job: _Job[Any], result: Any, error: BaseException | None) -> None:
        if job.left_behind:
            self._left_behind[job.key] -= 1
            if not self._left_behind[job.key]:
                del self._left_behind[job.key]
        else:
            self._running -= 1
            if job.deadline is not None:
                job.deadline.cancel()
            if job.future.done():  # cancelled meanwhile; nobody waits for it
                pass
            elif error is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(error)
        if self._idle + self._running < self._limit:
            self._idle += 1
        else:
            self._queue.put(None)
        self._begin()
        if not self._running and self._trim is None:
            self._trim = job.loop.call_later(self._idle_seconds, self._end_idle)

    def _end_idle(self) -> None:
        self._trim = None
        for _ in range(self._idle):
            self._queue.put(None)
        self._idle = 0

    def _work(self) -> None:
        """Run calls until told to end; all bookkeeping is left to the loop's thread."""
        while (job := self._queue.get()) is not None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = job.fn(*job.args)
            except StopIteration as stopped:
                # A future cannot carry StopIteration: it would end the awaiting generator.
                error = RuntimeError("a host call raised StopIteration")
                error.__cause__ = stopped
            except BaseException as raised:  # noqa: BLE001 - handed to the caller, whatever it is
                error = raised
            try:
                job.loop.call_soon_threadsafe(self._returned, job, result, error)
            except RuntimeError:  # the loop is closed: nobody is left to hand it to
                return
            del job, result, error  # keep nothing alive while waiting for the next
