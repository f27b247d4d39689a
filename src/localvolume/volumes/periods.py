"""Whether a period that was promised is over: by more than one clock of the day. Pure.

A clock of the day jumps: set by a hand, by NTP, or at a start before NTP. What ends with a period
cannot be had back, so a jump of one such clock ends none, and no jump at all ends one under the
eyes of a process that runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

FAR_SECONDS = 60.0
"""Clocks that are further apart than that are not both right, and it is said."""


@dataclass(frozen=True, slots=True)
class Clock:
    """`day` gives the seconds since the epoch, `steady` those of a clock that nobody sets."""

    day: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Moment:
    """Now. `here`: by the clock of this machine; `server`: at least so late by the API server's,
    None where that has not been heard yet. In seconds since the epoch."""

    here: float
    server: float | None

    @property
    def earlier(self) -> float | None:
        """By the clock that is behind; None where one is not known."""
        return None if self.server is None else min(self.here, self.server)

    @property
    def far_apart(self) -> bool:
        """Whether one of the two must be wrong."""
        return self.server is not None and abs(self.here - self.server) > FAR_SECONDS


NO_TIME = Moment(0.0, None)


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What this process knows of a period itself, by its steady clock.

    `seconds`: for how long it has known that the period has begun. `credible`: now, as both clocks
    of the day had it then, the earlier of the two and what has passed since; None where they were
    never both known.
    """

    seconds: float = 0.0
    credible: float | None = None


NOBODY = Witnessed()


def left(since: float | None, until: float, now: Moment, witnessed: Witnessed) -> float:
    """How many seconds it surely has still, at most 0 where it is over; inf where nobody can tell.

    It is over once this process has seen all of it. For one that began under an earlier process,
    the clocks of the day must agree: those of now, and those of the moment at which this process
    saw it first.
    """
    unseen = math.inf if since is None else until - since - witnessed.seconds
    known = now.earlier, witnessed.credible
    by_clocks = max(math.inf if one is None else until - one for one in known)
    return min(unseen, by_clocks)


def doubt(until: float, now: Moment) -> str:
    """What is wrong with the clocks where they do not agree that it is over, "" where nothing."""
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
    """The steady clock, and the earlier of the clocks of the day at that moment."""


class Witness:
    """Remembers since when this process has seen each beginning that is written down."""

    def __init__(self) -> None:
        self._seen: dict[str, _Sight] = {}

    def look(self, marks: Mapping[str, str], now: Moment, steady: float) -> dict[str, Witnessed]:
        """All that is marked now, by UID; what is not any more, or is marked otherwise, is
        forgotten."""
        self._seen = {uid: self._sight(uid, mark, now, steady) for uid, mark in marks.items()}
        return {uid: _of(one, steady) for uid, one in self._seen.items()}

    def of(self, uid: str, mark: str, now: Moment, steady: float) -> Witnessed:
        """The same of one object, which stays remembered until `forget`."""
        self._seen[uid] = found = self._sight(uid, mark, now, steady)
        return _of(found, steady)

    def forget(self, uid: str) -> None:
        """It is not marked any more."""
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
