"""Clocks that stand still until the test lets them go on: what ends with a period does not end
while a slow machine is still on its way to what the test does before that."""

from __future__ import annotations

import time

from localvolume.volumes.periods import Clock


class Standing:
    """`clock` is for an agent or a controller."""

    def __init__(self) -> None:
        self._began = time.time()
        self._went_on: float | None = None
        self.clock = Clock(day=lambda: self._began + self._passed(), steady=self._passed)

    def go_on(self) -> None:
        self._went_on = time.monotonic()

    def _passed(self) -> float:
        return 0.0 if self._went_on is None else time.monotonic() - self._went_on
