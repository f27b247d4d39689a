"""How long to wait after a failure: exponential, with jitter, so that many never retry at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass


@dataclass(eq=False)
class Backoff:
    """Waits up to a bound that doubles from `first` to `longest` seconds.

    `spread` is the share of the bound that is random. 1.0 spreads a thousand nodes best over the
    time after an outage; 0.5 is for one disk, which is always left alone for a while.
    """

    first: float = 0.5
    longest: float = 30.0
    _: KW_ONLY
    spread: float = 1.0
    uniform: Callable[[float, float], float] = random.uniform

    def __post_init__(self) -> None:
        self.failures = 0

    def reset(self) -> None:
        self.failures = 0

    def next(self, at_least: float | None = None) -> float:
        """Seconds to wait after one more failure; `at_least` is what the server asked for."""
        # 2**16 is past every bound; a higher power would only make a needlessly large number.
        bound = min(self.longest, self.first * 2 ** min(self.failures, 16))
        self.failures += 1
        wait = self.uniform(bound * (1 - self.spread), bound)
        return wait if at_least is None else at_least + wait
