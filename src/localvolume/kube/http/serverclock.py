"""The time by the API server's own clock, from the `Date` of its answers (RFC 9110, 6.6.1).

Gives bounds, not a time: an answer is dated in whole seconds, between the request and its arrival.
From then on the bounds advance with a clock that nobody sets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

_RESOLUTION_SECONDS = 1.0


class ServerClock:
    """`steady` is a clock that nobody sets, in seconds. The newest answer counts."""

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self.steady = steady
        self._ahead: tuple[float, float] | None = None
        """How far the server's clock is ahead of the steady one, at least and at most."""

    def told(self, date: str | None, asked: float, answered: float) -> None:
        """Take in the `Date` of an answer; both moments are by `steady`. Ignores invalid dates."""
        try:
            dated = parsedate_to_datetime(date or "")
        except ValueError:
            return
        if dated.tzinfo is not None:
            day = dated.timestamp()
            self._ahead = day - answered, day + _RESOLUTION_SECONDS - asked

    def earliest(self) -> float | None:
        """The earliest it can be now, in seconds since the epoch; None before any answer."""
        return None if self._ahead is None else self.steady() + self._ahead[0]

    def latest(self) -> float | None:
        """The latest it can be now; None before any answer."""
        return None if self._ahead is None else self.steady() + self._ahead[1]
