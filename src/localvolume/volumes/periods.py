"""Whether a promised period is over, by more than one wall clock. Pure.

Wall clocks jump: a person or NTP sets them, or a machine starts before NTP does. What ends with a
period cannot be brought back. So a jump of one wall clock ends no period, and not even a jump of
both ends a period that a running process has seen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

FAR_SECONDS = 60.0
"""Clocks that are further apart than this cannot both be right, and `doubt` says so."""


@dataclass(frozen=True, slots=True)
class Clock:
    """`day` gives the seconds since the epoch, `steady` those of a clock that nobody can set."""

    day: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Moment:
    """Now, in seconds since the epoch. `here`: by this machine's clock. `server`: the earliest that
    it can be by the API server's clock, None until the server has told its time."""

    here: float
    server: float | None

    @property
    def earlier(self) -> float | None:
        """Now by the clock that is behind; None if one is not known."""
        return None if self.server is None else min(self.here, self.server)

    @property
    def far_apart(self) -> bool:
        """Whether one of the two clocks must be wrong."""
        return self.server is not None and abs(self.here - self.server) > FAR_SECONDS


NO_TIME = Moment(0.0, None)


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What this process has seen of a period itself, by its steady clock.

    `seconds`: for how long it has known that the period has begun. `credible`: now, counted from
    when it first knew both wall clocks: the earlier of the two, plus the time since. None if they
    were never both known.
    """

    seconds: float = 0.0
    credible: float | None = None


NOBODY = Witnessed()


def left(since: float | None, until: float, now: Moment, witnessed: Witnessed) -> float:
    """How many seconds the period still lasts for certain; 0 or less: it is over; inf: unknown.

    It is over once this process has seen all of it. If it began under an earlier process, all wall
    clocks must say that it is over: those of now, and those of when this process first saw it,
    plus the time since.
    """
    unseen = math.inf if since is None else until - since - witnessed.seconds
    known = now.earlier, witnessed.credible
    by_clocks = max(math.inf if one is None else until - one for one in known)
    return min(unseen, by_clocks)


def doubt(until: float, now: Moment) -> str:
    """What is wrong with the clocks if they disagree and one says that it is over, or ""."""
    if now.server is None or not now.far_apart or max(now.here, now.server) < until:
        return ""
    ahead, behind = "this machine's clock", "the API server's"
    if now.here < now.server:
        ahead, behind = behind, "this machine's"
    return f"{ahead} is far ahead of {behind}: one of them is wrong, and no end is taken from it"


@dataclass(frozen=True, slots=True)
class _Sight:
    mark: str
    since: float
    anchor: tuple[float, float] | None
    """The steady clock, and the earlier of the wall clocks at that moment."""


class Witness:
    """Remembers since when this process has seen each recorded beginning of a period."""

    def __init__(self) -> None:
        self._seen: dict[str, _Sight] = {}

    def look(self, marks: Mapping[str, str], now: Moment, steady: float) -> dict[str, Witnessed]:
        """What it knows of all that is marked now, by UID. It forgets objects that are no longer
        marked, and starts again if a mark has changed."""
        self._seen = {uid: self._sight(uid, mark, now, steady) for uid, mark in marks.items()}
        return {uid: _of(one, steady) for uid, one in self._seen.items()}

    def of(self, uid: str, mark: str, now: Moment, steady: float) -> Witnessed:
        """The same for one object, which it remembers until `forget`."""
        self._seen[uid] = found = self._sight(uid, mark, now, steady)
        return _of(found, steady)

    def forget(self, uid: str) -> None:
        """Forgets an object that is no longer marked."""
        self._seen.pop(uid, None)

    def _sight(self, uid: str, mark: str, now: Moment, steady: float) -> _Sight:
        found = self._seen.get(uid)
        since = steady if found is None or found.mark != mark else found.since
        anchor = None if found is None or found.mark != mark else found.anchor
        if anchor is None and now.earlier is not None:
            anchor = steady, now.earlier
        return _Sight(mark, since, anchor)


def _of(found: _Sight, steady: float) -> Witnessed:
    if found.anchor is None:
        return Witnessed(steady - found.since)
    then, day = found.anchor
    return Witnessed(steady - found.since, day + steady - then)
