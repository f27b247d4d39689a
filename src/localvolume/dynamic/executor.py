"""Has the steps of a plan done, and says what fails, is refused or is held: each once.

A failure is waited out per volume and kind of act: a growth that failed delays no removal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from localvolume.backends.model import BackendFailed, Busy, GoesOn, Impossible, Record
from localvolume.dynamic.act import Acts, log_fields
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
from localvolume.dynamic.preconditions import Superseded
from localvolume.host.process.workers import Hung
from localvolume.kube.backoff import Backoff
from localvolume.kube.errors import ApiError, LookAgain, NotThere, TryAgainLater
from localvolume.reconcile.runner import Failing, Runner
from localvolume.volumes.capacity import quantity

log = logging.getLogger(__name__)

_GOES_ON_SECONDS = 0.1
"""Between two pieces of what is done a piece at a time."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """A step, the facts that it was planned from, and how often the users had changed by then."""

    step: Step
    facts: Facts
    users: int


class Executor:
    """Starts the steps of a plan, and knows which are running or waiting for another attempt."""

    def __init__(self, acts: Acts, *, wake: Callable[[], None], paces: DynamicPaces) -> None:
        self._acts = acts
        self._paces = paces
        self._wake = wake
        self._runner = Runner[_Planned](
            lambda planned: acts.do(planned.step, planned.facts),
            failed=self._tell_failed,
            ended=self._ended,
            kind=lambda planned: _kind(planned.step),
            backoff=lambda: Backoff(paces.first_wait, paces.longest_wait, spread=0.5),
        )
        self._said: dict[str, tuple[str, str]] = {}
        """The reason of what is held or refused, and that of its Event."""
        self._users_changed = 0
        """How often the mount table has."""

    @property
    def busy(self) -> Collection[str]:
        """The names at which something is under way."""
        return self._runner.busy

    def promised(self) -> Iterator[tuple[str, Record]]:
        """What is being made or grown, as it will be, with the name of its pool."""
        for planned in self._runner.under_way():
            match planned.step:
                case Make() | Publish() as step:
                    yield step.pool.name, step.record
                case Grow() as step:
                    yield step.pool.name, _grown(step.record, step.size_bytes)

    def begin(self, plan: Plan, facts: Facts) -> None:
        """Start what is to be done, say what is refused or held."""
        names = set(self._runner.busy)
        for step in plan.steps:
            names.add(step.key)
            match step:
                case Hold() | Reject():
                    self._say(step)
                case Keep():
                    self._said.pop(step.key, None)
                    self._runner.forget(step.key)
                case _:
                    self._said.pop(step.key, None)
                    self._runner.offer(step.key, _Planned(step, facts, self._users_changed))
        for gone in self._said.keys() - names:
            del self._said[gone]
        self._runner.forget_but(names)

    def users_changed(self) -> None:
        """The mount table changed: what failed because somebody used the volume is tried soon."""
        self._users_changed += 1
        soon = time.monotonic() + self._paces.first_wait
        for failing in self._runner.all_failing():
            if isinstance(failing.note, Busy) and failing.not_before > soon:
                failing.not_before = soon
                self._wake_in(self._paces.first_wait)

    def say_again(self) -> None:
        """Events expire after an hour: what is refused or held is said anew."""
        self._said.clear()

    async def stop(self) -> None:
        """Let acts under way come to an end; a purge ends between two files."""
        self._acts.stop()
        await self._runner.stop()

    def _ended(self, key: str, planned: _Planned, wait: float | None) -> None:
        if wait is None and isinstance(planned.step, Ask):
            wait = self._paces.unwanted
            self._runner.wait(key, planned, wait)
        if wait is not None:
            self._wake_in(wait)
        self._wake()

    def _tell_failed(
        self, key: str, planned: _Planned, error: Exception, failing: Failing
    ) -> float:
        """Say what failed; after how many seconds it is tried again."""
        step = planned.step
        failing.note = error
        match error:
            case Superseded() | LookAgain() | NotThere():
                log.debug("%s: %s", key, error)
                return failing.overtaken()
            case GoesOn():
                log.info("%s: %s", key, error)
                return _GOES_ON_SECONDS
            case BackendFailed():
                never = isinstance(error, Impossible)
                wait = self._paces.longest_wait if never else failing.again()
                self._failed(step, str(error), wait)
                if isinstance(error, Busy) and planned.users != self._users_changed:
                    # Who used it may have let go while it was being tried.
                    return min(wait, self._paces.first_wait)
            case Hung():
                wait = failing.again()
                self._failed(step, str(error), wait)
            case OSError():
                wait = failing.again()
                text = f"{error.strerror or error}: {error.filename or 'the pool'}"
                self._failed(step, text, wait)
            case TryAgainLater():
                # An API server that is away is no news about a volume.
                wait = max(failing.again(), error.after or 0.0)
                self._acts.count_failure(step)
                log.warning("%s: tried again in %.1f s: %s", key, wait, error)
            case ApiError():
                wait = failing.again()
                self._failed(step, str(error), wait)
            case _:  # a mistake of ours about one volume must not end the others
                wait = failing.again()
                log.error("%s: tried again in %.1f s: unexpected", key, wait, exc_info=error)
        return wait

    def _failed(self, step: Step, reason: str, wait: float) -> None:
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
