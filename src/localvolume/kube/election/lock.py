"""One Lease as a candidate sees and writes it: the watch, reads, and writes that cannot go astray.

A write goes through only if the lease still is as last seen. Whether a write whose answer was lost
was done is told by its renewTime, once the lease is seen again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Any

from localvolume.kube.client import Client, MergePatch
from localvolume.kube.election import record as leading
from localvolume.kube.election.record import View, version_of
from localvolume.kube.errors import AlreadyThere, ApiError, LookAgain, NotThere, TryAgainLater
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import LEASES
from localvolume.kube.workloads import Lease

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class LeaseLock:
    """`view` is the lease as last seen, None before; `on_view` is called with each new one.

    `lease_seconds` is what we write as the duration, and the least that we wait for another's.
    No method raises ApiError: failures are logged once, until they are over.
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
        # renewTimes of writes that may be in the lease. With one resourceVersion to go by, at most
        # one of those that failed was done; so many are not in doubt at a time.
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
        # With nothing seen meanwhile this is the newest, also if the server went back in time.
        self._saw(lease, version, surely=self.view is before)
        return True

    async def hold(self, timeout: float) -> bool:
        """Write that we hold the lease, if it is as last seen. True: it is ours, and was when this
        was called. False: it may be anybody's; `view` is renewed if something changed.
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
        """Give the lease up, if it is ours, so that another takes it at once."""
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
                # It is the namespace that is not there.
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
        """Take in what the lease is at a resourceVersion, unless that is old news."""
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
        """Log a failure once, not at each attempt, and its end."""
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
