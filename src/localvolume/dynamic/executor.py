"""Starts the actions of a plan, and says what fails, is refused or is held, each once.

Failures are waited out per volume and kind of action: a failed growth delays no removal.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from localvolume.backends.model import BackendFailed, Busy, GoesOn, Impossible, Record
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.act import Acts, log_fields
from localvolume.dynamic.called import refusal_of
from localvolume.dynamic.model import (
    Action,
    AnswerCall,
    Ask,
    CutGroup,
    Delete,
    Facts,
    Grow,
    GrowCalled,
    Hold,
    Keep,
    Make,
    MakeCalled,
    Modify,
    ModifyCalled,
    Plan,
    Publish,
    Purge,
    Reject,
    Remember,
    RemoveCalled,
    RemoveGroup,
    Retire,
    TakeOver,
    TellInfeasible,
)
from localvolume.dynamic.paces import DynamicPaces
from localvolume.dynamic.plan.attributes import EVENT_FAILED as EVENT_MODIFY_FAILED
from localvolume.dynamic.plan.growing import EVENT_RESIZE_FAILED
from localvolume.dynamic.plan.moving import EVENT_NOT_MOVED
from localvolume.dynamic.plan.volumes import (
    EVENT_FAILED_DELETE,
    EVENT_KEPT_FROM_CLAIM,
    EVENT_PUT_RIGHT,
)
from localvolume.dynamic.preconditions import Superseded
from localvolume.host.process.workers import Hung
from localvolume.kube.backoff import Backoff
from localvolume.kube.errors import ApiError, LookAgain, NotThere, TryAgainLater
from localvolume.kube.objects import PersistentVolume
from localvolume.reconcile.runner import Failing, Runner
from localvolume.volumes.capacity import quantity

log = logging.getLogger(__name__)

_GOES_ON_SECONDS = 0.1
"""The wait between two pieces of an action that is done a piece at a time."""


_CALLED: Final = (MakeCalled, GrowCalled, ModifyCalled, RemoveCalled, CutGroup, RemoveGroup)
"""What fails for a call: its caller is told, and repeats it."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """An action, the facts it was planned from, and `Executor._users_changed` at that time."""

    action: Action
    facts: Facts
    users: int


class Executor:
    """Starts the actions of a plan, and knows which are running or waiting for another attempt."""

    def __init__(self, acts: Acts, *, wake: Callable[[], None], paces: DynamicPaces) -> None:
        self._acts = acts
        self._paces = paces
        self._wake = wake
        self._runner = Runner[_Planned](
            lambda planned: acts.do(planned.action, planned.facts),
            failed=self._tell_failed,
            ended=self._ended,
            kind=lambda planned: _kind(planned.action),
            backoff=lambda: Backoff(paces.first_wait, paces.longest_wait, spread=0.5),
        )
        self._said: dict[str, tuple[str, str]] = {}
        """By key: the reason for a hold or refusal, and the reason of its Event."""
        self._warned: dict[str, str] = {}
        self._users_changed = 0
        """How often the mount table has changed."""

    @property
    def busy(self) -> Collection[str]:
        """The names with an action under way, those of all snapshots of a group included."""
        members = {
            record.name
            for planned in self._runner.under_way()
            if isinstance(planned.action, CutGroup | RemoveGroup)
            for record in planned.action.records
        }
        return members | set(self._runner.busy)

    @property
    def warned(self) -> Mapping[str, str]:
        """The volumes of which a Warning was said and not taken back: the objects' UIDs by name."""
        return dict(self._warned)

    def promised(self) -> Iterator[tuple[str, Record]]:
        """Yields the pool's name and the coming record of each volume being made or grown."""
        for planned in self._runner.under_way():
            match planned.action:
                case Make() | Publish() as action:
                    yield action.pool.name, action.record
                case MakeCalled() as action:
                    yield action.pool.name, action.record
                case CutGroup() as action:
                    for record in action.records:
                        yield action.pool.name, record
                case Grow() | GrowCalled() as action:
                    yield action.pool.name, replace(action.record, size_bytes=action.size_bytes)

    def begin(self, plan: Plan, facts: Facts) -> None:
        """Start what is to be done, say what is refused or held, and take back what is over."""
        self._take_back(plan, facts)
        # What ended during the look has no action in the plan, and keeps its wait all the same.
        names = {*self._runner.busy, *facts.busy}
        for action in plan.actions:
            names.add(action.key)
            match action:
                case Hold() | Reject():
                    self._say(action)
                case Keep():
                    self._said.pop(action.key, None)
                    self._runner.forget(action.key)
                case AnswerCall():
                    self._acts.calls.answer_as(action)
                    if action.look_again:
                        self._wake()
                case _:
                    self._said.pop(action.key, None)
                    self._runner.offer(action.key, _Planned(action, facts, self._users_changed))
        for gone in self._said.keys() - names:
            del self._said[gone]
        self._runner.forget_but(names)

    def users_changed(self) -> None:
        """The mount table changed: try again soon what failed because a volume was in use."""
        self._users_changed += 1
        soon = time.monotonic() + self._paces.first_wait
        for failing in self._runner.all_failing():
            if isinstance(failing.note, Busy) and failing.not_before > soon:
                failing.not_before = soon
                self._wake_in(self._paces.first_wait)

    def say_again(self) -> None:
        """Say again what is refused or held: Events expire after an hour."""
        self._said.clear()

    async def stop(self) -> None:
        """Let acts under way come to an end; a purge ends between two files."""
        self._acts.stop()
        await self._runner.stop()
        self._acts.calls.end()

    def _ended(self, key: str, planned: _Planned, wait: float | None) -> None:
        if wait is None and isinstance(planned.action, TakeOver):
            # The act has said so.
            self._warned.pop(key, None)
        if wait is None and isinstance(planned.action, Ask):
            wait = self._paces.unwanted
            self._runner.wait(key, planned, wait)
        if wait is not None:
            self._wake_in(wait)
        self._wake()

    def _tell_failed(
        self, key: str, planned: _Planned, error: Exception, failing: Failing
    ) -> float:
        """Say what failed; returns after how many seconds it is tried again."""
        action = planned.action
        failing.note = error
        if isinstance(action, _CALLED):
            log.warning("%s: %s", key, error, extra=log_fields(action))
            self._acts.calls.refuse(key, refusal_of(error))
            return 0.0
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
                self._failed(action, str(error), wait)
                if isinstance(error, Busy) and planned.users != self._users_changed:
                    # The user may have let go of the volume during the attempt.
                    return min(wait, self._paces.first_wait)
            case Hung():
                wait = failing.again()
                self._failed(action, str(error), wait)
            case OSError():
                wait = failing.again()
                text = f"{error.strerror or error}: {error.filename or 'the pool'}"
                self._failed(action, text, wait)
            case TryAgainLater():
                # An unavailable API server says nothing about a volume: no Event.
                wait = max(failing.again(), error.after or 0.0)
                self._acts.count_failure(action)
                log.warning("%s: tried again in %.1f s: %s", key, wait, error)
            case ApiError():
                wait = failing.again()
                self._failed(action, str(error), wait)
            case _:  # a mistake of ours about one volume must not end the others
                wait = failing.again()
                log.error("%s: tried again in %.1f s: unexpected", key, wait, exc_info=error)
        return wait

    def _failed(self, action: Action, reason: str, wait: float) -> None:
        # The text has no time in it: Events that say the same are counted as one.
        text = f"{reason}; it is tried again"
        self._acts.count_failure(action)
        match action:
            case Make() | Publish():
                text = self._acts.say_failed(action.claim, text)
            case Remember() if action.given and action.record.driver == CSI_DRIVER:
                text = f"its pool cannot note which claim has it now, so pods wait: {text}"
                self._warn(action.volume, EVENT_KEPT_FROM_CLAIM, text)
            case Delete() | Retire():
                text = f"not removed: {text}"
                self._warn(action.volume, EVENT_FAILED_DELETE, text)
            case Grow():
                text = f"volume {action.key} cannot grow to {quantity(action.size_bytes)}: {text}"
                self._acts.say_of_claim(action.claim, "Warning", EVENT_RESIZE_FAILED, text)
            case Modify():
                text = f"volume {action.key} is not modified: {text}"
                self._acts.say_of_claim(action.claim, "Warning", EVENT_MODIFY_FAILED, text)
            case TellInfeasible():
                text = f"{action.reason}; and the claim's status does not say so yet: {text}"
                self._acts.say_of_claim(action.claim, "Warning", EVENT_RESIZE_FAILED, text)
            case Purge():
                text = f"not purged: {text}"
            case TakeOver():
                text = f"not taken over: {text}"
                self._warn(action.volume, EVENT_NOT_MOVED, text)
        fields = log_fields(action) | {"reason": reason}
        log.error("%s: %s in %.0f s", action.key, text, wait, extra=fields)

    def _wake_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds + 0.001, self._wake)

    def _say(self, action: Hold | Reject) -> None:
        # The Event counts too: a hold without one gets one as soon as somebody waits for it.
        saying = action.reason, action.event if isinstance(action, Hold) else ""
        if self._said.get(action.key) == saying:
            return
        self._said[action.key] = saying
        if isinstance(action, Reject):
            self._acts.failed(action.claim, action.reason)
            return
        log.log(
            logging.WARNING if action.event else logging.INFO,
            "%s is left alone: %s",
            action.key,
            action.reason,
            extra=log_fields(action),
        )
        if not action.event:
            return
        if action.event == "ProvisioningFailed" and action.claim is not None:
            self._acts.failed(action.claim, action.reason)
        elif action.event == EVENT_RESIZE_FAILED and action.claim is not None:
            self._acts.cannot_grow(action.claim, action.reason)
        elif action.claim is not None:
            self._acts.say_of_claim(action.claim, "Warning", action.event, action.reason)
        elif action.volume is not None:
            self._warn(action.volume, action.event, action.reason)

    def _warn(self, volume: PersistentVolume, event: str, text: str) -> None:
        self._warned[volume.metadata.name] = volume.metadata.uid
        self._acts.say_of_volume(volume, "Warning", event, text)

    def _take_back(self, plan: Plan, facts: Facts) -> None:
        for name, why in plan.over.items():
            self._warned.pop(name, None)
            text = f"what was said of it is over: {why}"
            log.info("%s: %s", name, text)
            self._acts.say_of_volume(facts.volumes[name], "Normal", EVENT_PUT_RIGHT, text)
        there = {name: one.metadata.uid for name, one in facts.volumes.items()}
        for name, uid in self.warned.items():
            if there.get(name) != uid:
                del self._warned[name]


def _kind(action: Action) -> str:
    """Failures of one kind say nothing about another. Publishing is the last part of making."""
    return Make.__name__ if isinstance(action, Publish) else type(action).__name__
