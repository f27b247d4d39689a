"""Runs the actions of one leadership, a few at a time, and has their objects judged again.

Kept in memory, for one leadership: it says when to try again, never whether something is due.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from localvolume.controller.volumes.act import Refrained
from localvolume.controller.volumes.preconditions import Superseded
from localvolume.controller.workqueue import WorkQueue
from localvolume.kube.backoff import Backoff
from localvolume.kube.election.lease import NotLeading
from localvolume.kube.errors import (
    ApiError,
    LookAgain,
    NotThere,
    TellTheAdministrator,
    TryAgainLater,
)
from localvolume.reconcile.runner import Answer, Failing, Runner

S = TypeVar("S")

log = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 0.3
"""How long after an act its object is judged again: the watch may bring the change meanwhile."""

_ALSO: Final = 0.01
"""Seconds added to a wait, so that it is surely over."""

FIRST_WAIT_SECONDS: Final = 0.5
LONGEST_WAIT: Final = 60.0


class Executor(Generic[S]):
    """Starts actions. Objects that are busy or must wait are judged again when they may begin.

    `do(action)` does one. `state_of(action)` is the resourceVersion from which one was decided. If
    it is given, nothing waits for the watch: `do` makes known what it did, an object that was asked
    for meanwhile is judged when `do` ends, and after a conflict an action that was decided from
    another state may begin at once.
    """

    def __init__(
        self,
        do: Callable[[S], Awaitable[None]],
        queue: WorkQueue,
        *,
        at_a_time: int,
        state_of: Callable[[S], str] | None = None,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self._queue = queue
        self._state_of = state_of
        self._settle_seconds = settle_seconds
        self._runner = Runner[S](
            do,
            failed=self._tell_failed,
            ended=self._ended,
            kind=lambda action: type(action).__name__,
            backoff=lambda: Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT),
            at_a_time=at_a_time,
        )
        self._asked: set[str] = set()
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._refused: dict[str, str] = {}
        """By object: what the API server did not let us do in the last attempt."""

    @property
    def refused(self) -> str:
        """What the API server does not let us do, "" if nothing."""
        return next(iter(self._refused.values()), "")

    def begin(self, name: str, action: S) -> None:
        """Do it, unless the object is busy or must wait. Beyond `at_a_time`, it is judged later."""
        failing = self._runner.known(name, action)
        if failing is not None and self._is_news(failing, action):
            failing.not_before = 0.0
        answer = self._runner.offer(name, action)
        if answer is Answer.FULL:
            self._waiting[name] = None
            return
        # It may have been judged, and begun, before its turn came: then it waits for none.
        self._waiting.pop(name, None)
        if answer is Answer.BEGUN:
            return
        if answer is Answer.BUSY:
            self._asked.add(name)
        else:
            # A request for an earlier time may have displaced the one for this time.
            self._queue.later(name, self._runner.left(name, action) + _ALSO)
        self._pass_on()

    def _is_news(self, failing: Failing, action: S) -> bool:
        """Whether it was decided from another state than the one that turned out to be outdated."""
        return (
            self._state_of is not None
            and failing.note is not None
            and failing.note != self._state_of(action)
        )

    def forget(self, name: str) -> None:
        """Note that nothing is to be done about this object."""
        self._waiting.pop(name, None)
        self._refused.pop(name, None)
        self._asked.discard(name)
        if name not in self._runner.busy:
            self._runner.forget(name)
        self._pass_on()

    async def stop(self) -> None:
        """Give up all that is under way: the next leader finds out what is to be done."""
        self._waiting.clear()
        await self._runner.end()

    def _ended(self, name: str, _action: S, wait: float | None) -> None:
        if wait is None:
            self._refused.pop(name, None)
        self._wake_one()
        asked = name in self._asked
        self._asked.discard(name)
        if asked and self._state_of is not None:
            self._queue.add([name])
        if wait is not None:
            self._queue.later(name, wait + _ALSO)
        elif self._state_of is None:
            self._queue.later(name, self._settle_seconds)

    def _tell_failed(self, name: str, action: S, error: Exception, failing: Failing) -> float:
        failing.note = None
        self._refused.pop(name, None)
        asked = error.after if isinstance(error, TryAgainLater) else None
        wait = failing.again(max(self._settle_seconds, asked or 0.0))
        match error:
            case NotLeading():
                log.info("%s: %s", name, error)
            case Superseded() | Refrained() | LookAgain() | NotThere():
                log.debug("%s: %s", name, error)
                if self._state_of is not None:
                    failing.note = self._state_of(action)
            case ApiError():
                if isinstance(error, TellTheAdministrator) and error.status in (401, 403):
                    self._refused[name] = str(error)
                log.warning("%s: tried again in %.1f s: %s", name, wait, error)
            case _:  # a bug that shows with one object must not stop the others
                log.error("%s: tried again in %.1f s: unexpected", name, wait, exc_info=error)
        return wait

    def _pass_on(self) -> None:
        """What was judged has taken no place: if there is one, the next may have it."""
        if not self._runner.full:
            self._wake_one()

    def _wake_one(self) -> None:
        """Have the longest waiting object judged again. If nothing is due, the next is woken."""
        if self._waiting:
            self._queue.add([self._waiting.popitem(last=False)[0]])
