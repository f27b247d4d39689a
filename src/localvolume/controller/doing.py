"""What is under way: one act per volume or claim, so many at a time, and failures waited out.

In memory and for one leadership alone: it says when to try again, never whether something is due.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from localvolume.controller.agenda import Agenda
from localvolume.controller.volumes.act import Refrained
from localvolume.controller.volumes.live import Superseded
from localvolume.kube.backoff import Backoff
from localvolume.kube.election.lease import NotLeading
from localvolume.kube.errors import (
    ApiError,
    LookAgain,
    NotThere,
    TellTheAdministrator,
    TryAgainLater,
)

S = TypeVar("S")

log = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 0.3
"""After an act, the watch has this long to tell what it did before the volume is judged again."""

_ALSO: Final = 0.01
"""So much later, in seconds, a wait is surely over."""

FIRST_WAIT_SECONDS: Final = 0.5
LONGEST_WAIT: Final = 60.0


@dataclass(slots=True)
class _Failing:
    """A step that did not succeed yet; `until` (time.monotonic) it is not tried again.

    `outdated` is the state of the object that turned out not to be its last, None if it was.
    """

    kind: type[Any]
    backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT))
    until: float = 0.0
    outdated: str | None = None


class Doing(Generic[S]):
    """Starts steps, and knows which objects have one under way or wait for another attempt.

    `do(step)` does one. With `state_of(step)`, the resourceVersion that a step was decided from,
    nothing waits for the watch: `do` makes known what it did, what was asked for meanwhile is
    judged when it is done, and after a conflict whatever is decided from a later state may begin.
    """

    def __init__(
        self,
        do: Callable[[S], Awaitable[None]],
        agenda: Agenda,
        *,
        at_a_time: int,
        state_of: Callable[[S], str] | None = None,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self._act = do
        self._agenda = agenda
        self._at_a_time = at_a_time
        self._state_of = state_of
        self._settle_seconds = settle_seconds
        self._asked: set[str] = set()
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._waiting: OrderedDict[str, None] = OrderedDict()
        self._failing: dict[str, _Failing] = {}
        self.refused = ""
        """What the API server does not let us do; "" while the last act was allowed."""

    def begin(self, name: str, step: S) -> None:
        """Do it, unless the object is busy or waits. What finds no place is judged anew then."""
        if name in self._busy:
            self._asked.add(name)
            return
        failing = self._failing.get(name)
        if failing is not None:
            if failing.kind is not type(step):
                del self._failing[name]  # it came to something else meanwhile
            elif (
                not self._is_news(failing, step) and (left := failing.until - time.monotonic()) > 0
            ):
                # What is asked for at an earlier time may have displaced the request for this one.
                self._agenda.later(name, left + _ALSO)
                return
        if len(self._busy) >= self._at_a_time:
            self._waiting[name] = None
            return
        self._busy[name] = asyncio.create_task(self._do(name, step))

    def _is_news(self, failing: _Failing, step: S) -> bool:
        return (
            self._state_of is not None
            and failing.outdated is not None
            and failing.outdated != self._state_of(step)
        )

    def forget(self, name: str) -> None:
        """Nothing is to be done about this object."""
        self._waiting.pop(name, None)
        self._asked.discard(name)
        if name not in self._busy:
            self._failing.pop(name, None)
        if len(self._busy) < self._at_a_time:
            self._wake_one()

    async def stop(self) -> None:
        """Give up all that is under way: whoever leads next finds what there is to do."""
        self._waiting.clear()
        tasks = list(self._busy.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _do(self, name: str, step: S) -> None:
        wait: float | None = self._settle_seconds if self._state_of is None else None
        try:
            await self._act(step)
        except NotLeading as error:
            log.info("%s: %s", name, error)
            wait = self._again(name, step)
        except (Superseded, Refrained, LookAgain, NotThere) as error:
            log.debug("%s: %s", name, error)
            wait = self._again(name, step)
            if self._state_of is not None:
                self._failing[name].outdated = self._state_of(step)
        except ApiError as error:
            if isinstance(error, TellTheAdministrator) and error.status in (401, 403):
                self.refused = str(error)
            wait = self._again(name, step, error)
            log.warning("%s: tried again in %.1f s: %s", name, wait, error)
        except Exception:  # a mistake of ours about one object must not end the others
            wait = self._again(name, step)
            log.exception("%s: tried again in %.1f s: unexpected", name, wait)
        else:
            self.refused = ""
            self._failing.pop(name, None)
        finally:
            del self._busy[name]
            self._wake_one()
        asked = name in self._asked
        self._asked.discard(name)
        if asked and self._state_of is not None:
            self._agenda.add([name])
        if wait is not None:
            self._agenda.later(name, wait)

    def _wake_one(self) -> None:
        """Have the longest waiting judged anew; where nothing comes of that, the next is woken."""
        if self._waiting:
            self._agenda.add([self._waiting.popitem(last=False)[0]])

    def _again(self, name: str, step: S, error: ApiError | None = None) -> float:
        """Stay away from it for a while, each time longer; how many seconds."""
        failing = self._failing.setdefault(name, _Failing(type(step)))
        failing.outdated = None
        asked = error.after if isinstance(error, TryAgainLater) else None
        wait = failing.backoff.next(max(self._settle_seconds, asked or 0.0))
        failing.until = time.monotonic() + wait
        return wait + _ALSO
