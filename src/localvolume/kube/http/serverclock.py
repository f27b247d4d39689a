"""What time it is by the API server's own clock, from the `Date` of its answers (RFC 9110, 6.6.1).

Bounds, not a time: an answer was dated between the moments at which it was asked for and came, and
in whole seconds. From then on they go by a clock that nobody sets.
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
        """An answer has this `Date`; both moments by `steady`. What is no date tells nothing."""
        try:
            dated = parsedate_to_datetime(date or "")
        except ValueError:
            return
        if dated.tzinfo is not None:
            day = dated.timestamp()
            self._ahead = day - answered, day + _RESOLUTION_SECONDS - asked

    def earliest(self) -> float | None:
        """The least that it can be now, in seconds since the epoch; None before any answer."""
        return None if self._ahead is None else self.steady() + self._ahead[0]

    def latest(self) -> float | None:
        """The most that it can be now; None before any answer."""
        return None if self._ahead is None else self.steady() + self._ahead[1]
