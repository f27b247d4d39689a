"""Leader election by a Lease: at any time, at most one candidate is sure that it leads.

    stand -> elected: lead() runs, the lease is renewed -> lost -> lead() has ended -> stand ...

A renewal proves leadership from when it was sent, for less time than the others wait before they
take over. Each query computes it, from a clock that goes on while the process is stopped or the
machine sleeps: a leader that wakes up too late learns that before it does anything else.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import socket
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.election import record
from localvolume.kube.election import record as leading
from localvolume.kube.election.record import View, version_of
from localvolume.kube.ending import ended
from localvolume.kube.errors import AlreadyThere, ApiError, LookAgain, NotThere, TryAgainLater
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import LEASES
from localvolume.kube.workloads import Lease

_log = logging.getLogger(__name__)

_NEVER: Final = -math.inf


def boottime() -> float:
    """Seconds of a clock that goes on while this process is stopped or the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def new_identity() -> str:
    """An identity for one life of one process: the host's name and a random UUID."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class NotLeading(Exception):
    """It is not sure that we lead: write nothing."""


@dataclass(eq=False)
class Election:
    """One candidate for the lease `namespace/name`. `identity` must be unique to this process.

    The others take over after `lease_seconds` without a renewal; a leader renews every
    `retry_seconds`, and gives up `renew_deadline` after its last renewal. Raises ValueError for
    times that cannot work together. `client` must not be one that asks `check` before it writes.
    """

    client: Client
    _: KW_ONLY
    namespace: str
    name: str
    identity: str
    lease_seconds: float = 15.0
    renew_deadline: float = 10.0
    retry_seconds: float = 2.0
    clock: Callable[[], float] = boottime

    def __post_init__(self) -> None:
        if not self.identity:
            raise ValueError("a candidate needs an identity")
        record.check_times(self.lease_seconds, self.renew_deadline, self.retry_seconds)
        self._what = f"lease {self.namespace}/{self.name}"
        self._proved_until = _NEVER
        self._changed = asyncio.Event()
        self._deposed = asyncio.Event()
        self._lock = LeaseLock(
            self.client,
            namespace=self.namespace,
            name=self.name,
            identity=self.identity,
            lease_seconds=self.lease_seconds,
            clock=self.clock,
            on_view=self._on_view,
        )

    @property
    def leading(self) -> bool:
        """Whether it is sure, now, that nobody else leads."""
        return self.clock() < self._proved_until

    @property
    def holder(self) -> str:
        """Who was last seen to hold the lease, "" for nobody."""
        return self._lock.view.holder if self._lock.view is not None else ""

    @property
    def transitions(self) -> int:
        """How often the lease has changed hands, as last seen."""
        return self._lock.view.transitions if self._lock.view is not None else 0

    def check(self) -> None:
        """Raise NotLeading unless it is sure, now, that we lead. Call it right before a write."""
        if not self.leading:
            raise NotLeading(f"{self._what} is not surely ours; last seen: {self._state}")

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Stand for election until cancelled; while elected, `lead()` runs as a task.

        When leadership is lost or cannot be proved, `lead()` is cancelled; it may raise NotLeading
        then, and we stand again only after it has ended. If it returns or raises anything else,
        so does this method. The lease is released at the end, once `lead()` has ended.
        """
        watching = asyncio.create_task(self._lock.watch(), name=f"watch {self._what}")
        try:
            while True:
                await self._stand()
                if await self._reign(lead):
                    return
        finally:
            self._proved_until = _NEVER
            try:
                await self._lock.release(self.renew_deadline)
            finally:
                await ended(watching)

    async def _stand(self) -> None:
        """Return once elected."""
        backoff = Backoff(first=self.retry_seconds / 8, longest=self.retry_seconds)
        while True:
            self._changed.clear()
            view = self._lock.view
            if view is None or self.clock() < view.free_at:
                backoff.reset()
                await self._wait_for_turn(view)
            elif await self._prove():
                _log.info("%s: elected, as %s", self._what, self.identity)
                return
            else:
                await asyncio.sleep(backoff.next())

    async def _wait_for_turn(self, view: View | None) -> None:
        """Wait for a change or for the end of the lease; read the lease if the watch is silent.

        A leader renews every few seconds, so if the watch is silent for longer, either the watch
        is broken or the leader is gone.
        """
        if view is not None:
            left = max(0.0, view.free_at - self.clock())
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, self.retry_seconds)):
                    await self._changed.wait()
            if self._changed.is_set() or self._lock.silence < 2 * self.retry_seconds:
                return
        if not await self._lock.look(self.renew_deadline / 2) and view is None:
            await asyncio.sleep(self._jittered())

    async def _reign(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Lead while the proof lasts; True if `lead` ended by itself. Raises what `lead` raises."""
        work = asyncio.create_task(_awaited(lead), name=f"lead by {self._what}")
        renewing = asyncio.create_task(self._renew(), name=f"renew {self._what}")
        lapsing = asyncio.create_task(self._lapse(), name=f"watch over {self._what}")
        try:
            await asyncio.wait({work, lapsing}, return_when=asyncio.FIRST_COMPLETED)
            lost = not work.done() or not self.leading
            if lost:
                self._proved_until = _NEVER
                _log.warning("%s: leadership is lost; last seen: %s", self._what, self._state)
        finally:
            try:
                # We go on renewing meanwhile: unless leadership was lost, the work may still write.
                await ended(work)
            finally:
                await ended(renewing, lapsing)
        if not renewing.cancelled():
            renewing.result()
        if work.cancelled():
            return False
        error = work.exception()
        if error is not None and not (lost and _is_not_leading(error)):
            raise error
        return error is None and not lost

    async def _renew(self) -> None:
        """Renew until leadership is no longer proved."""
        pause = self.retry_seconds
        while self.leading:
            await asyncio.sleep(max(0.0, min(pause, self._proved_until - self.clock())))
            if self.leading:
                pause = self.retry_seconds if await self._prove() else self._jittered() / 2

    async def _lapse(self) -> None:
        """Return as soon as leadership is no longer proved, whatever a renewal is waiting for.

        Waits in short steps, because a timeout does not count the time that the machine sleeps.
        """
        while (left := self._proved_until - self.clock()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, self.retry_seconds)):
                    await self._deposed.wait()

    async def _prove(self) -> bool:
        """Take or renew the lease; True if that proves for a while that we lead."""
        led = self.leading
        sent = self.clock()
        timeout = self.renew_deadline / 2
        if led:
            timeout = max(0.0, min(timeout, self._proved_until - sent))
        held = await self._lock.hold(timeout)
        until = sent + self.renew_deadline
        # A lapsed proof stays lapsed even if nobody took the lease: somebody may have seen that.
        if not held or self.leading != led or self.clock() >= until:
            return False
        if not led:
            self._deposed.clear()
        self._proved_until = until
        return True

    def _on_view(self, view: View) -> None:
        if not view.ours:
            self._proved_until = _NEVER
            self._deposed.set()
        self._changed.set()

    @property
    def _state(self) -> str:
        view = self._lock.view
        return record.describe(view) if view is not None else "not seen"

    def _jittered(self) -> float:
        return self.retry_seconds * random.uniform(0.8, 1.2)  # noqa: S311 - not a secret


async def _awaited(lead: Callable[[], Awaitable[None]]) -> None:
    await lead()


def _is_not_leading(error: BaseException) -> bool:
    """Whether the error is NotLeading, or a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(NotLeading)[1] is None
    return isinstance(error, NotLeading)


# The lease as a candidate sees and writes it. A write succeeds only if the lease is still as last
# seen. If the answer to a write was lost, its renewTime shows whether it was done, once the lease
# is seen again.


@dataclass(eq=False)
class LeaseLock:
    """`view` is the lease as last seen, None before; `on_view` is called with each new one.

    `lease_seconds` is the duration that we write, and the least that we wait for another's lease.
    No method raises ApiError: a failure is logged once, and again when it is over.
    """

    client: Client
    _: KW_ONLY
    namespace: str
    name: str
    identity: str
    lease_seconds: float
    clock: Callable[[], float]
    on_view: Callable[[View], None]

    def __post_init__(self) -> None:
        self.view: View | None = None
        self._what = f"lease {self.namespace}/{self.name}"
        # renewTimes of writes that may be in the lease. At most one failed write of those with the
        # same resourceVersion was done; there are never this many in doubt at a time.
        self._written: deque[str] = deque(maxlen=64)
        self._in_doubt = False
        self._told: dict[str, str] = {}
        self._informer = Informer(
            self.client,
            LEASES,
            namespace=self.namespace,
            field_selector=f"metadata.name={self.name}",
            on_change=self._on_change,
        )

    async def watch(self) -> None:
        """Take in every change as it happens, until cancelled."""
        await self._informer.run()

    @property
    def silence(self) -> float:
        """Seconds since the watch last brought anything."""
        return asyncio.get_running_loop().time() - self._informer.last_contact

    async def look(self, timeout: float) -> bool:
        """Read the lease; False if that failed."""
        before = self.view
        lease: Lease | None = None
        try:
            async with asyncio.timeout(timeout):
                lease = await self.client.get(LEASES, self.name, self.namespace)
        except NotThere:
            pass
        except (ApiError, TimeoutError) as error:
            self._trouble("read", error)
            return False
        self._trouble("read", None)
        version = version_of(lease) if lease is not None else before.version if before else -1
        # If nothing was seen meanwhile this is the newest, even if the server was rolled back.
        self._saw(lease, version, surely=self.view is before)
        return True

    async def hold(self, timeout: float) -> bool:
        """Write that we hold the lease, if it is as last seen. True: it is ours as of the time of
        the call. False: it may be anybody's; `view` is updated if something changed.
        """
        view = self.view
        if view is None:
            raise ValueError("look first")
        now = leading.stamp(datetime.now(UTC))
        self._written.append(now)
        record = leading.held(view, self.identity, self.lease_seconds, now)
        lease = await self._put(view.lease, record, timeout)
        if lease is None or self.view is None or self.view.version != version_of(lease):
            # In the last case, something newer was seen before the answer came.
            return False
        self._written.clear()
        self._written.append(now)
        return True

    async def release(self, timeout: float) -> None:
        """Give up the lease, if it is ours, so that another candidate can take it at once."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                if self._in_doubt and not await self.look(timeout):
                    return
                while (view := self.view) is not None and view.lease is not None and view.ours:
                    record = leading.released(view, leading.stamp(datetime.now(UTC)))
                    if not await self._put(view.lease, record, timeout) and self.view is view:
                        return

    async def _put(
        self, lease: Lease | None, record: Mapping[str, Any], timeout: float
    ) -> Lease | None:
        """Create the lease, or change it if it is as last seen. None if that failed."""
        self._in_doubt = True
        try:
            async with asyncio.timeout(timeout):
                if lease is None:
                    body = {"metadata": {"name": self.name}, "spec": record}
                    answer = await self.client.create(LEASES, body, self.namespace)
                else:
                    patch = MergePatch(leading.locked(lease, record))
                    answer = await self.client.patch(LEASES, self.name, patch, self.namespace)
        except (LookAgain, AlreadyThere, NotThere) as error:
            self._in_doubt = False
            if isinstance(error, NotThere) and lease is None:
                # The namespace does not exist.
                self._trouble("write", error)
            else:
                await self.look(timeout)
            return None
        except (ApiError, TimeoutError) as error:
            self._in_doubt = isinstance(error, TryAgainLater | TimeoutError)
            self._trouble("write", error)
            return None
        self._in_doubt = False
        self._trouble("write", None)
        self._saw(answer, version_of(answer))
        return answer

    def _on_change(self, old: Lease | None, new: Lease | None) -> None:
        if new is not None:
            self._saw(new, version_of(new))
        elif old is not None:
            self._saw(None, version_of(old))

    def _saw(self, lease: Lease | None, version: int, *, surely: bool = False) -> None:
        """Take in the lease as of a resourceVersion, unless something newer was seen."""
        before = self.view
        if before is not None and not surely:
            gone_now = lease is None and before.lease is not None
            if version < before.version or (version == before.version and not gone_now):
                return
        self.view = view = leading.look(
            before,
            lease,
            version=version,
            now=self.clock(),
            identity=self.identity,
            seconds=self.lease_seconds,
            written=self._written,
        )
        self.on_view(view)
        self._tell(before, view)

    def _tell(self, before: View | None, view: View) -> None:
        state = leading.describe(view)
        if before is None or leading.describe(before) != state:
            _log.info("%s: %s", self._what, state)
        odd = leading.oddities(view.lease)
        if view.holder == self.identity and not view.ours and before is not None:
            odd = "somebody else wrote our identity into it"
        if odd and odd != self._told.get("record"):
            _log.warning("%s: %s", self._what, odd)
        self._told["record"] = odd

    def _trouble(self, verb: str, error: ApiError | TimeoutError | None) -> None:
        """Log a failure once, not at each attempt, and log when it is over."""
        before = self._told.get(verb, "")
        self._told[verb] = _kind_of(error)
        if error is not None and _kind_of(error) != before:
            why = str(error) or "no answer in time"
            _log.warning("%s: cannot %s it: %s", self._what, verb, why)
        elif error is None and before:
            _log.info("%s: can %s it again", self._what, verb)


def _kind_of(error: ApiError | TimeoutError | None) -> str:
    if isinstance(error, ApiError):
        return f"{type(error).__name__} {error.status} {error.reason}"
    return "" if error is None else "Timeout"
