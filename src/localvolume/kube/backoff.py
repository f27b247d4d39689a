"""How long to stay away after a failure: exponential, and by chance, so that many never storm."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass


@dataclass(eq=False)
class Backoff:
    """Waits up to a bound that doubles from `first` to `longest` seconds.

    `spread` is how much of the bound is left to chance. All of it spreads a thousand nodes best
    over the time after an outage; half of it is for one disk, which is to be left in peace.
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
        # 2**16 is past every bound; beyond, the power would only grow a number for nothing.
        bound = min(self.longest, self.first * 2 ** min(self.failures, 16))
        self.failures += 1
        wait = self.uniform(bound * (1 - self.spread), bound)
        return wait if at_least is None else at_least + wait
