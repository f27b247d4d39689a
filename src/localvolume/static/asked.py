"""What a live look at PersistentVolumes outside our label found: remembered for a minute only."""

from __future__ import annotations

import time
from collections.abc import Callable

from localvolume.kube.objects import PersistentVolume

KEEP_SECONDS = 60.0


class Asked:
    """Answers by name; None where there was no such object. Only names are decided by them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answers: dict[str, tuple[float, PersistentVolume | None]] = {}

    def answer(self, name: str, volume: PersistentVolume | None) -> None:
        self._answers[name] = (self._clock(), volume)

    def forget(self, name: str) -> None:
        self._answers.pop(name, None)

    def clear(self) -> None:
        self._answers.clear()

    def fresh(self) -> dict[str, PersistentVolume | None]:
        """The answers that are not too old to be relied on; the others are forgotten."""
        oldest = self._clock() - KEEP_SECONDS
        self._answers = {name: kept for name, kept in self._answers.items() if kept[0] >= oldest}
        return {name: volume for name, (_, volume) in self._answers.items()}
