"""What is under way: one act per volume, failures waited out, what is refused or held said once.

A failure is waited out per volume and kind of act: a growth that failed delays no removal.

In-memory and for this process alone: nothing here decides what may be removed, only when to try
again and what has been said already.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from localvolume.backends.model import BackendFailed, Busy, GoesOn, Impossible, Record
from localvolume.dynamic.act import Acts, log_fields
from localvolume.dynamic.live import Superseded
from localvolume.dynamic.model import (
    Ask,
    Delete,
    Facts,
    Grow,
    Hold,
    Keep,
    Make,
    Plan,
    Publish,
    Purge,
    Reject,
    Retire,
    Step,
)
from localvolume.dynamic.paces import DynamicPaces
from localvolume.dynamic.plan.claims import EVENT_RESIZE_FAILED
from localvolume.host.process.workers import Hung
from localvolume.kube.backoff import Backoff
from localvolume.kube.errors import ApiError, LookAgain, NotThere, TryAgainLater
from localvolume.volumes.capacity import quantity

log = logging.getLogger(__name__)

STOP_SECONDS = 5.0
"""How long the end of the process waits for acts under way to come to an end."""

_SUPERSEDED_SECONDS = 0.1
"""Between two attempts whose facts had changed in between: never a tight loop."""


@dataclass(slots=True)
class _Wait:
    """Of acts of one kind about one volume, from a failure to the next success."""

    backoff: Backoff
    not_before: float = 0.0
    """The time of the next attempt (time.monotonic)."""
    for_users: bool = False
    """It failed because somebody uses the volume."""


class Doing:
    """Starts the steps of a plan, and knows which are running or waiting for another attempt."""

    def __init__(self, acts: Acts, *, wake: Callable[[], None], paces: DynamicPaces) -> None:
        self._acts = acts
        self._paces = paces
        self._wake = wake
        self._busy: dict[str, tuple[asyncio.Task[None], Step]] = {}
        self._waits: dict[str, dict[str, _Wait]] = {}
        """By the volume's name and the kind of act."""
        self._said: dict[str, tuple[str, str]] = {}
        """The reason of what is held or refused, and that of its Event."""
        self._users_changed = 0
        """How often the mount table has."""

    @property
    def busy(self) -> Collection[str]:
        """The names at which something is under way."""
        return self._busy.keys()

    def promised(self) -> Iterator[tuple[str, Record]]:
        """What is being made or grown, as it will be, with the name of its pool."""
        for _, step in self._busy.values():
            match step:
                case Make() | Publish():
                    yield step.pool.name, step.record
                case Grow():
                    yield step.pool.name, _grown(step.record, step.size_bytes)

    def begin(self, plan: Plan, facts: Facts) -> None:
        """Start what is to be done, say what is refused or held."""
        now = time.monotonic()
        names = set(self._busy)
        for step in plan.steps:
            names.add(step.key)
            match step:
                case Hold() | Reject():
                    self._say(step)
                    continue
                case Keep():
                    self._forget(step.key)
                    continue
            self._said.pop(step.key, None)
            if step.key not in self._busy and self._not_before(step) <= now:
                task = asyncio.create_task(self._do(step, facts))
                self._busy[step.key] = task, step
        for gone in (self._said.keys() | self._waits.keys()) - names:
            self._forget(gone)

    def _forget(self, name: str) -> None:
        self._said.pop(name, None)
        self._waits.pop(name, None)

    def users_changed(self) -> None:
        """The mount table changed: what failed because somebody used the volume is tried soon."""
        self._users_changed += 1
        for waits in self._waits.values():
            for wait in waits.values():
                if wait.for_users:
                    self._hurry(wait)

    def _hurry(self, wait: _Wait) -> None:
        soon = time.monotonic() + self._paces.first_wait
        if wait.not_before > soon:
            wait.not_before = soon
            self._wake_in(self._paces.first_wait)

    def say_again(self) -> None:
        """Events expire after an hour: what is refused or held is said anew."""
        self._said.clear()

    async def stop(self) -> None:
        """Let acts under way come to an end; a purge ends between two files."""
        self._acts.stop()
        tasks = [task for task, _ in self._busy.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=STOP_SECONDS)

    async def _do(self, step: Step, facts: Facts) -> None:
        name = step.key
        users = self._users_changed
        try:
            await self._acts.do(step, facts)
        except (Superseded, LookAgain, NotThere) as error:
            log.debug("%s: %s", name, error)
            self._again(step, _SUPERSEDED_SECONDS)
        except GoesOn as error:
            log.info("%s: %s", name, error)
            self._again(step, _SUPERSEDED_SECONDS)
        except BackendFailed as error:
            self._failed(step, str(error), never=isinstance(error, Impossible))
            wait = self._wait_of(step)
            wait.for_users = isinstance(error, Busy)
            if wait.for_users and users != self._users_changed:
                # Who used it may have let go while it was being tried.
                self._hurry(wait)
        except OSError as error:
            self._failed(step, f"{error.strerror or error}: {error.filename or 'the pool'}")
        except Hung as error:
            self._failed(step, str(error))
        except ApiError as error:
            self._refused(step, error)
        except Exception:  # a mistake of ours about one volume must not end the others
            seconds = self._wait(step)
            log.exception("%s: tried again in %.1f s: unexpected", name, seconds)
            self._again(step, seconds)
        else:
            self._waits.get(name, {}).pop(_kind(step), None)
            if isinstance(step, Ask):
                self._again(step, self._paces.unwanted)
        finally:
            del self._busy[name]
            self._wake()

    def _failed(self, step: Step, reason: str, *, never: bool = False) -> None:
        wait = self._paces.longest_wait if never else self._wait(step)
        # Without the time: Events that say the same are counted as one.
        text = f"{reason}; it is tried again"
        self._acts.count_failure(step)
        match step:
            case Make() | Publish():
                text = self._acts.say_failed(step.claim, text)
            case Delete() | Retire():
                text = f"not removed: {text}"
                self._acts.say_of_volume(step.volume, "Warning", "VolumeFailedDelete", text)
            case Grow():
                text = f"volume {step.key} cannot grow to {quantity(step.size_bytes)}: {text}"
                self._acts.say_of_claim(step.claim, "Warning", EVENT_RESIZE_FAILED, text)
            case Purge():
                text = f"not purged: {text}"
        fields = log_fields(step) | {"reason": reason}
        log.error("%s: %s in %.0f s", step.key, text, wait, extra=fields)
        self._again(step, wait)

    def _refused(self, step: Step, error: ApiError) -> None:
        """An API server that is away is no news about a volume; what it forbids is."""
        if not isinstance(error, TryAgainLater):
            self._failed(step, str(error))
            return
        wait = max(self._wait(step), error.after or 0.0)
        self._acts.count_failure(step)
        log.warning("%s: tried again in %.1f s: %s", step.key, wait, error)
        self._again(step, wait)

    def _wait(self, step: Step) -> float:
        wait = self._wait_of(step)
        wait.for_users = False
        return wait.backoff.next()

    def _wait_of(self, step: Step) -> _Wait:
        waits = self._waits.setdefault(step.key, {})
        if (wait := waits.get(_kind(step))) is None:
            backoff = Backoff(self._paces.first_wait, self._paces.longest_wait, spread=0.5)
            wait = waits[_kind(step)] = _Wait(backoff)
        return wait

    def _not_before(self, step: Step) -> float:
        wait = self._waits.get(step.key, {}).get(_kind(step))
        return wait.not_before if wait else 0.0

    def _again(self, step: Step, seconds: float) -> None:
        self._wait_of(step).not_before = time.monotonic() + seconds
        self._wake_in(seconds)

    def _wake_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds + 0.001, self._wake)

    def _say(self, step: Hold | Reject) -> None:
        # What was held in silence is said aloud once somebody waits for it, for the same reason.
        saying = step.reason, step.event if isinstance(step, Hold) else ""
        if self._said.get(step.key) == saying:
            return
        self._said[step.key] = saying
        if isinstance(step, Reject):
            self._acts.failed(step.claim, step.reason)
            return
        log.log(
            logging.WARNING if step.event else logging.INFO,
            "%s is left alone: %s",
            step.key,
            step.reason,
            extra=log_fields(step),
        )
        if not step.event:
            return
        if step.event == "ProvisioningFailed" and step.claim is not None:
            self._acts.failed(step.claim, step.reason)
        elif step.event == EVENT_RESIZE_FAILED and step.claim is not None:
            self._acts.cannot_grow(step.claim, step.reason)
        elif step.claim is not None:
            self._acts.say_of_claim(step.claim, "Warning", step.event, step.reason)
        elif step.volume is not None:
            self._acts.say_of_volume(step.volume, "Warning", step.event, step.reason)


def _kind(step: Step) -> str:
    """What failed of one kind says nothing about another. To publish is the last part of making."""
    return Make.__name__ if isinstance(step, Publish) else type(step).__name__


def _grown(record: Record, size_bytes: int) -> Record:
    return replace(record, size_bytes=size_bytes)
