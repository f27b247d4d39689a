"""Remembers, for a short time, what live looks at PersistentVolumes without our label found."""

from __future__ import annotations

import time

from localvolume.kube.objects import PersistentVolume


class Asked:
    """Answers by name; None if there was no such object. They decide only about names.

    Each is forgotten after `seconds`.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._answers: dict[str, tuple[float, PersistentVolume | None]] = {}
        self._named: dict[str, tuple[float, str]] = {}

    def answer(self, name: str, volume: PersistentVolume | None) -> None:
        self._answers[name] = (time.monotonic(), volume)

    def forget(self, name: str) -> None:
        self._answers.pop(name, None)

    def named(self, host_path: str, why: str) -> None:
        """Remember why what is at that path may be somebody's already."""
        self._named[host_path] = (time.monotonic(), why)

    def clear(self) -> None:
        self._answers.clear()
        self._named.clear()

    def fresh(self) -> dict[str, PersistentVolume | None]:
        """The answers that are not too old to be relied on; the others are forgotten."""
        oldest = time.monotonic() - self._seconds
        self._answers = {name: kept for name, kept in self._answers.items() if kept[0] >= oldest}
        return {name: volume for name, (_, volume) in self._answers.items()}

    def fresh_named(self) -> dict[str, str]:
        """The same for what may be somebody's, by its path on the host."""
        oldest = time.monotonic() - self._seconds
        self._named = {path: kept for path, kept in self._named.items() if kept[0] >= oldest}
        return {path: why for path, (_, why) in self._named.items()}
