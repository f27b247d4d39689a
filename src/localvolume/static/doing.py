"""What is under way: one act per path, failures waited out, what is held said once.

In-memory and for this process alone: nothing here decides whether anything is clean, only when to
try again and what has been said already.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby

from localvolume.cleaning.receipt import CleaningFailed, CleaningStopped
from localvolume.host.process.workers import Hung
from localvolume.kube.backoff import Backoff
from localvolume.kube.correlate import ObjectRef
from localvolume.kube.errors import ApiError, LookAgain, NotThere, TryAgainLater
from localvolume.kube.events import EventRecorder
from localvolume.kube.objects import PersistentVolume
from localvolume.static.act import Acts, log_fields
from localvolume.static.confirm import Superseded
from localvolume.static.model import Clean, Hold, Keep, Publish, Step
from localvolume.static.paces import StaticPaces
from localvolume.static.plan.plan import EVENT_FAILED_DELETE, EVENT_NOT_RECORDED
from localvolume.static.plan.surroundings import Surroundings
from localvolume.static.recording import NotRecorded
from localvolume.static.telemetry import Telemetry

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0
"""How long the end of the process waits for acts under way to come to a stop."""

LONGEST_API_WAIT = 15.0
"""The longest wait, in seconds, after a failed request, unless the server asks for more."""

_SUPERSEDED_SECONDS = 0.2
_LONGEST_SUPERSEDED = 2.0
"""Between two attempts whose facts had changed in between, twice as long each time: what is watched
may come late, and each attempt asks the API server.
"""


class Doing:
    """Starts the steps of a plan, and knows which are running or waiting for another attempt."""

    def __init__(
        self,
        acts: Acts,
        events: EventRecorder,
        telemetry: Telemetry,
        *,
        wake: Callable[[], None],
        paces: StaticPaces | None = None,
    ) -> None:
        self._acts = acts
        self._events = events
        self._telemetry = telemetry
        self._wake = wake
        self._paces = paces or StaticPaces()
        # None: it waits for its turn to be published.
        self._busy: dict[str, asyncio.Task[None] | None] = {}
        self._waiting: deque[tuple[str, list[Step], Surroundings]] = deque()
        self._publishing = 0
        self._attempts: dict[str, Backoff] = {}
        self._overtaken: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._said: dict[str, str] = {}

    @property
    def busy(self) -> Collection[str]:
        """The keys at which something is under way or waits for its turn."""
        return self._busy.keys()

    def begin(self, steps: Sequence[Step], around: Surroundings) -> None:
        """Start what is to be done, say what is held; steps are sorted by key."""
        now = time.monotonic()
        keys = set()
        for key, group in groupby(steps, key=lambda step: step.key):
            keys.add(key)
            todo, held = [], False
            for step in group:
                if isinstance(step, Hold):
                    held = True
                    self._say(step, around)
                elif not isinstance(step, Keep):
                    todo.append(step)
            if not held:
                self._said.pop(key, None)
            if todo and key not in self._busy and self._not_before.get(key, 0.0) <= now:
                self._start(key, todo, around)
        for gone in (self._said.keys() | self._attempts.keys() | self._not_before.keys()) - keys:
            self._said.pop(gone, None)
            self._attempts.pop(gone, None)
            self._overtaken.pop(gone, None)
            self._not_before.pop(gone, None)

    def _start(self, key: str, steps: list[Step], around: Surroundings) -> None:
        """Begin at once, but publish only so many at a time: a task that waits costs 5 kB."""
        if not _only_publishes(steps):
            self._busy[key] = asyncio.create_task(self._do(key, steps, around))
        elif self._publishing < self._paces.publishers:
            self._publishing += 1
            self._busy[key] = asyncio.create_task(self._do(key, steps, around))
        else:
            self._busy[key] = None
            self._waiting.append((key, steps, around))

    def _published(self) -> None:
        self._publishing -= 1
        if self._waiting:
            self._start(*self._waiting.popleft())

    def forget_waiting(self) -> None:
        """What was not begun yet was planned with a configuration that counts no longer."""
        for key, _, _ in self._waiting:
            del self._busy[key]
        self._waiting.clear()

    def objects_changed(self, volumes: Mapping[str, PersistentVolume]) -> None:
        """The objects, by name, are these now: a cleaning that one does not want any more stops."""
        self._acts.stops.look(volumes)

    def say_again(self) -> None:
        """Events expire after an hour: what is still held is said anew."""
        self._said.clear()

    async def stop(self) -> None:
        """Let acts under way come to a stop; a cleaning stops between two steps."""
        self._acts.stops.end()
        self._waiting.clear()
        tasks = [task for task in self._busy.values() if task]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
        self._acts.cleaners.close()

    async def _do(self, key: str, steps: Sequence[Step], around: Surroundings) -> None:
        try:
            for step in steps:
                await self._acts.do(step, around)
        except (Superseded, LookAgain, NotThere) as error:
            log.debug("%s: %s", key, error)
            wait = self._overtaken.get(key, _SUPERSEDED_SECONDS)
            self._overtaken[key] = min(_LONGEST_SUPERSEDED, 2 * wait)
            self._again(key, wait)
        except CleaningStopped:
            log.info("%s: cleaning stopped, to be begun anew", key)
            self._again(key, 1.0)
        except CleaningFailed as error:
            self._failed(key, steps, error)
        except NotRecorded as error:
            self._not_recorded(key, steps, error)
        except (ApiError, Hung) as error:
            # An API server that is back should not wait long for us; a disk may.
            wait = min(LONGEST_API_WAIT, self._backoff(key) / 5)
            if isinstance(error, TryAgainLater) and error.after:
                wait = max(wait, error.after)
            log.warning("%s: tried again in %.1f s: %s", key, wait, error)
            self._again(key, wait)
        except Exception:  # a mistake of ours about one volume must not end the others
            wait = self._backoff(key)
            log.exception("%s: tried again in %.1f s: unexpected", key, wait)
            self._again(key, wait)
        else:
            self._attempts.pop(key, None)
            self._overtaken.pop(key, None)
            self._not_before.pop(key, None)
        finally:
            del self._busy[key]
            # A published volume is known already; whatever else was done may call for more.
            if _only_publishes(steps):
                self._published()
            else:
                self._wake()

    def _failed(self, key: str, steps: Sequence[Step], error: CleaningFailed) -> None:
        wait = self._backoff(key)
        # Without the time: Events that say the same are counted as one.
        text = f"cleaning failed, it is tried again: {error.reason}"
        fields = log_fields(steps[-1]) | {"reason": error.reason}
        log.error(
            "%s: cleaning failed, tried again in %.0f s: %s", key, wait, error.reason, extra=fields
        )
        for step in steps:
            if isinstance(step, Clean):
                self._events.event(
                    ObjectRef.of_volume(step.volume.metadata), "Warning", EVENT_FAILED_DELETE, text
                )
        self._again(key, wait)

    def _not_recorded(self, key: str, steps: Sequence[Step], error: NotRecorded) -> None:
        wait = self._backoff(key)
        log.error("%s: tried again in %.0f s: %s", key, wait, error, extra=log_fields(steps[-1]))
        if volume := getattr(steps[-1], "volume", None):
            about = ObjectRef.of_volume(volume.metadata)
            self._events.event(about, "Warning", EVENT_NOT_RECORDED, str(error))
        self._again(key, wait)

    def _backoff(self, key: str) -> float:
        """Count one more failure; how long to wait after it."""
        first, longest = self._paces.first_wait, self._paces.longest_wait
        return self._attempts.setdefault(key, Backoff(first, longest, spread=0.5)).next()

    def _again(self, key: str, seconds: float) -> None:
        self._not_before[key] = time.monotonic() + seconds
        asyncio.get_running_loop().call_later(seconds + 0.001, self._wake)

    def _say(self, step: Hold, around: Surroundings) -> None:
        said = self._said.get(step.key)
        # What is read once more is most often what it was.
        if said == step.reason or (said and step.code == "reading"):
            return
        self._said[step.key] = step.reason
        quiet = step.code in ("vanished", "reading") and not step.event
        level = logging.INFO if quiet else logging.WARNING
        log.log(
            level,
            "%s is left alone: %s",
            step.key,
            step.reason,
            extra={"persistentvolume": "", **log_fields(step), "code": step.code},
        )
        if step.volume and step.event:
            self._events.event(
                ObjectRef.of_volume(step.volume.metadata), "Warning", step.event, step.reason
            )
            if step.event == EVENT_FAILED_DELETE:
                mode = step.volume.spec.volume_mode or "Filesystem"
                self._telemetry.delete_failed.labels(
                    mode, "job" if around.jobs else "process"
                ).inc()


def _only_publishes(steps: Sequence[Step]) -> bool:
    return all(isinstance(step, Publish) for step in steps)
