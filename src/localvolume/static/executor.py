"""Runs the actions of a plan, one at a time for each path, and says once what fails or is held."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import groupby

from localvolume.cleaning.receipt import CleaningFailed, CleaningStopped
from localvolume.host.process.workers import Hung
from localvolume.kube.backoff import Backoff
from localvolume.kube.correlate import ObjectRef
from localvolume.kube.errors import ApiError, LookAgain, NotThere
from localvolume.kube.events import EventRecorder
from localvolume.kube.objects import PersistentVolume
from localvolume.reconcile.runner import Failing, Runner
from localvolume.static.act import Acts, log_fields
from localvolume.static.metrics import StaticMetrics
from localvolume.static.model import Action, Clean, Hold, Keep, Publish
from localvolume.static.paces import StaticPaces
from localvolume.static.plan.plan import (
    EVENT_FAILED_DELETE,
    EVENT_NOT_RECORDED,
    EVENT_PUT_RIGHT,
)
from localvolume.static.plan.surroundings import Surroundings
from localvolume.static.preconditions import Superseded
from localvolume.static.recording import NotRecorded

log = logging.getLogger(__name__)

LONGEST_API_WAIT = 15.0
"""The longest wait, in seconds, after a failed request, unless the server asks for more."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """The actions of one path, and what they were planned with."""

    actions: Sequence[Action]
    around: Surroundings

    @property
    def only_publishes(self) -> bool:
        return all(isinstance(action, Publish) for action in self.actions)


@dataclass(eq=False)
class Executor:
    """Starts the actions of a plan, and knows which are running or waiting for another attempt."""

    acts: Acts
    events: EventRecorder
    metrics: StaticMetrics
    _: KW_ONLY
    wake: Callable[[], None]
    paces: StaticPaces

    def __post_init__(self) -> None:
        self._runner = Runner[_Planned](
            self._act,
            failed=self._tell_failed,
            ended=self._ended,
            backoff=lambda: Backoff(self.paces.first_wait, self.paces.longest_wait, spread=0.5),
            # A waiting task costs 5 kB, and the client allows no more requests in flight.
            at_a_time=self.paces.publishers,
            counted=lambda planned: planned.only_publishes,
            queued=True,
        )
        self._said: dict[str, str] = {}
        self._told: dict[str, ObjectRef] = {}
        """By key: the volume of which an Event says that it is left alone."""

    @property
    def busy(self) -> Collection[str]:
        """The keys for which something is under way or waits for its turn."""
        return self._runner.busy

    @property
    def publishing(self) -> bool:
        """Whether volumes are being published: the look that sees them comes after the last one."""
        return any(planned.only_publishes for planned in self._runner.under_way())

    def begin(self, actions: Sequence[Action], around: Surroundings) -> None:
        """Start what is to be done and say what is held; `actions` are sorted by key."""
        keys = set()
        for key, group in groupby(actions, key=lambda action: action.key):
            keys.add(key)
            todo, held, well = [], False, None
            for action in group:
                match action:
                    case Hold():
                        held = True
                        self._say(action, around)
                    case Keep():
                        well = action
                    case _:
                        todo.append(action)
            if not held:
                self._said.pop(key, None)
            if todo:
                self._runner.offer(key, _Planned(todo, around))
            elif well is not None and not held:
                self._say_over(well)
        for gone in self._said.keys() - keys:
            del self._said[gone]
        for gone in self._told.keys() - keys:
            del self._told[gone]
        self._runner.forget_but(keys)

    def forget_waiting(self) -> None:
        """Drop what has not begun: it was planned with a configuration that is not in force now."""
        self._runner.forget_waiting()

    def objects_changed(self, volumes: Mapping[str, PersistentVolume]) -> None:
        """Stop the cleanings that the objects, as they are now (by name), do not want any more."""
        self.acts.stops.look(volumes)

    def say_again(self) -> None:
        """Say again what is still held: Events expire after an hour."""
        self._said.clear()

    async def stop(self) -> None:
        """Stop the acts under way and wait for them; a cleaning stops between two of its steps."""
        self.acts.stops.end()
        await self._runner.stop()
        self.acts.cleaners.close()

    async def _act(self, planned: _Planned) -> None:
        for action in planned.actions:
            await self.acts.do(action, planned.around)

    def _ended(self, _key: str, planned: _Planned, wait: float | None) -> None:
        if wait is not None:
            asyncio.get_running_loop().call_later(wait + 0.001, self.wake)
        # What was published is known already: one look for all of it. All else may call for more.
        if not (planned.only_publishes and self.publishing):
            self.wake()

    def _tell_failed(
        self, key: str, planned: _Planned, error: Exception, failing: Failing
    ) -> float:
        """Say what failed; returns after how many seconds it is tried again."""
        actions = planned.actions
        match error:
            case Superseded() | LookAgain() | NotThere():
                log.debug("%s: %s", key, error)
                return failing.overtaken()
            case CleaningStopped():
                log.info("%s: cleaning stopped; it will begin anew", key)
                return 1.0
            case CleaningFailed():
                wait = failing.again()
                self._failed(key, actions, error, wait)
            case NotRecorded():
                wait = failing.again()
                self._not_recorded(key, actions, error, wait)
            case ApiError() | Hung():
                # An API server that is back should not wait long for us; a disk may.
                wait = min(LONGEST_API_WAIT, failing.again() / 5)
                if isinstance(error, ApiError):
                    wait = max(wait, error.after or 0.0)
                log.warning("%s: tried again in %.1f s: %s", key, wait, error)
            case _:  # a mistake of ours about one volume must not end the others
                wait = failing.again()
                log.error("%s: tried again in %.1f s: unexpected", key, wait, exc_info=error)
        return wait

    def _failed(
        self, key: str, actions: Sequence[Action], error: CleaningFailed, wait: float
    ) -> None:
        # The text leaves out the time: Events that say the same are counted as one.
        text = f"cleaning failed, it is tried again: {error.reason}"
        fields = log_fields(actions[-1]) | {"reason": error.reason}
        log.error(
            "%s: cleaning failed, tried again in %.0f s: %s", key, wait, error.reason, extra=fields
        )
        for action in actions:
            if isinstance(action, Clean):
                self.events.event(
                    ObjectRef.of_volume(action.volume.metadata),
                    "Warning",
                    EVENT_FAILED_DELETE,
                    text,
                )

    def _not_recorded(
        self, key: str, actions: Sequence[Action], error: NotRecorded, wait: float
    ) -> None:
        log.error("%s: tried again in %.0f s: %s", key, wait, error, extra=log_fields(actions[-1]))
        if volume := getattr(actions[-1], "volume", None):
            about = ObjectRef.of_volume(volume.metadata)
            self.events.event(about, "Warning", EVENT_NOT_RECORDED, str(error))

    def _say(self, action: Hold, around: Surroundings) -> None:
        said = self._said.get(action.key)
        # An entry that is read once more is most often what it was before.
        if said == action.reason or (said and action.code == "reading"):
            return
        self._said[action.key] = action.reason
        quiet = action.code in ("vanished", "reading") and not action.event
        level = logging.INFO if quiet else logging.WARNING
        log.log(
            level,
            "%s is left alone: %s",
            action.key,
            action.reason,
            extra={"persistentvolume": "", **log_fields(action), "code": action.code},
        )
        if action.volume and action.event:
            about = ObjectRef.of_volume(action.volume.metadata)
            self.events.event(about, "Warning", action.event, action.reason)
            self._told[action.key] = about
            if action.event == EVENT_FAILED_DELETE:
                mode = action.volume.spec.volume_mode or "Filesystem"
                self.metrics.delete_failed.labels(mode, "job" if around.jobs else "process").inc()

    def _say_over(self, action: Keep) -> None:
        """Say that what was told of a volume is over, if it is looked at and well.

        One that is kept for another reason, as one that is being deleted, may still be gone.
        """
        about = self._told.get(action.key)
        if about is None or action.volume is None or action.entry is None:
            return
        del self._told[action.key]
        if action.volume.metadata.uid == about.uid:
            text = f"the agent no longer leaves it alone: {action.reason}"
            self.events.event(about, "Normal", EVENT_PUT_RIGHT, text)
