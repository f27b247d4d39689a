"""Tells people what happened, as Events that `kubectl describe` shows on the object.

Recording an Event never blocks: it goes into a bounded queue, which drops (and counts) its oldest
entry when it is full. One task writes them, in order. It waits for a server that is away, and drops
an Event that the server refuses, with a log line. Nothing ever depends on an Event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.correlate import Correlator, EventType, ObjectRef, Occurrence, Record
from localvolume.kube.errors import AlreadyThere, ApiError, NotThere, TryAgainLater
from localvolume.kube.kinds import EVENTS

__all__ = ["EventRecorder", "ObjectRef"]

_log = logging.getLogger(__name__)

QUEUE: Final = 1000
# The API server's limits on an Event's message (bytes) and on a name (characters).
_MESSAGE_BYTES: Final = 1024
_NAME_CHARACTERS: Final = 253
# Attempts for one Event before the next one's turn. Each waits for up to 30 s, at random, so this
# takes some minutes at least.
ATTEMPTS: Final = 40


class EventRecorder:
    """Call `event()` within `speaking()`, or run `run()` as a task. `lost` counts Events dropped or
    refused, `suppressed` those for which their object had no budget left. `component` and `host`
    name the reporter and its node. `queue_size` is how many Events may wait, `attempts` how often
    one is tried.
    """

    def __init__(
        self,
        client: Client,
        component: str,
        host: str,
        *,
        clock: Callable[[], float] = time.time,
        backoff: Backoff | None = None,
        correlator: Correlator | None = None,
        queue_size: int = QUEUE,
        attempts: int = ATTEMPTS,
    ) -> None:
        self._client: Final = client
        self._component: Final = component
        self._host: Final = host
        self._clock: Final = clock
        self._backoff: Final = backoff or Backoff(first=1.0)
        self._correlator: Final = correlator or Correlator()
        self.queue_size: Final = queue_size
        self._attempts: Final = attempts
        self._queue: Final[deque[Occurrence]] = deque()
        self._wake: Final = asyncio.Event()
        self._idle: Final = asyncio.Event()
        self._idle.set()
        self.lost = 0
        self.suppressed = 0
        self.written = 0

    def event(self, about: ObjectRef, type_: EventType, reason: str, message: str) -> None:
        """Record that something happened to an object. `reason` is CamelCase, for machines."""
        if len(self._queue) >= self.queue_size:
            self._queue.popleft()
            self.lost += 1
        text = _shortened(message, _MESSAGE_BYTES)
        self._queue.append(Occurrence(about, type_, reason, text, self._clock()))
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Write the queued Events until cancelled."""
        while True:
            await self._wake.wait()
            while self._queue:
                await self._write(self._queue.popleft())
            self._wake.clear()
            self._idle.set()

    @asynccontextmanager
    async def speaking(self, last: float) -> AsyncIterator[None]:
        """Write the Events of the block, and wait up to `last` seconds at its end for the rest."""
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self.run())
            try:
                yield
            finally:
                await self.flush(last)
                writing.cancel()

    async def flush(self, timeout: float) -> bool:
        """Wait until all Events are written; False if that takes longer than `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _write(self, what: Occurrence) -> None:
        record = self._correlator.observe(what)
        if record is None:
            self.suppressed += 1
            return
        name, unsure = _new_name(what.about), False
        for _ in range(self._attempts):
            try:
                await self._write_once(what, record, name)
            except TryAgainLater as error:
                # It may have been written all the same. Under the same name, it is written once.
                unsure = True
                await asyncio.sleep(self._backoff.next(error.after))
                continue
            except AlreadyThere:
                if not unsure:
                    name = _new_name(what.about)
                    continue
                record.namespace, record.name = _namespace(what.about), name
            except ApiError as error:
                if record.name and isinstance(error, NotThere):
                    # It expired, as Events live for an hour: make a new one.
                    record.name, name, unsure = "", _new_name(what.about), False
                    continue
                _log.warning("an Event was refused (%s: %s): %s", what.reason, what.message, error)
                break
            self._backoff.reset()
            self.written += 1
            return
        self.lost += 1

    async def _write_once(self, what: Occurrence, record: Record, name: str) -> None:
        """Write down that it happened again, or make a new Event of that name."""
        if record.name:
            patch = {
                "count": record.count,
                "lastTimestamp": _rfc3339(record.last),
                "message": record.message,
            }
            await self._client.patch(EVENTS, record.name, MergePatch(patch), record.namespace)
            return
        namespace = _namespace(what.about)
        await self._client.create(EVENTS, self._manifest(what, record, namespace, name), namespace)
        record.namespace, record.name = namespace, name

    def _manifest(
        self, what: Occurrence, record: Record, namespace: str, name: str
    ) -> dict[str, Any]:
        about = what.about
        involved = {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.name,
            "namespace": about.namespace,
            "uid": about.uid,
            "resourceVersion": about.resource_version,
        }
        return {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {key: value for key, value in involved.items() if value},
            "type": what.type,
            "reason": what.reason,
            "message": record.message,
            "count": record.count,
            "firstTimestamp": _rfc3339(record.first),
            "lastTimestamp": _rfc3339(record.last),
            "source": {"component": self._component, "host": self._host},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }


def _namespace(about: ObjectRef) -> str:
    """The API server insists that Events of cluster-scoped objects are in "default"."""
    return about.namespace or "default"


def _new_name(about: ObjectRef) -> str:
    """As client-go names Events: the object's name, and the time in hexadecimal nanoseconds."""
    suffix = f".{time.time_ns():x}"
    return about.name[: _NAME_CHARACTERS - len(suffix)].rstrip(".-") + suffix


def _shortened(message: str, limit: int) -> str:
    encoded = message.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return encoded.decode()
    return encoded[: limit - 3].decode("utf-8", "ignore") + "…"


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
