"""Stops a cleaning under way: when the process ends, or when its object wants it no longer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from localvolume.kube.objects import PersistentVolume
from localvolume.volumes.objects import is_to_be_cleaned

log = logging.getLogger(__name__)


class Stops:
    """One event for each cleaning under way: once it is set, the cleaning ends after its step."""

    def __init__(self) -> None:
        self._under_way: list[tuple[PersistentVolume | None, asyncio.Event]] = []
        self._ended = False

    @contextmanager
    def of(self, volume: PersistentVolume | None) -> Iterator[asyncio.Event]:
        """The event of a cleaning that begins: for this object, or (None) before any use."""
        cleaning = (volume, asyncio.Event())
        if self._ended:
            cleaning[1].set()
        self._under_way.append(cleaning)
        try:
            yield cleaning[1]
        finally:
            self._under_way.remove(cleaning)

    def look(self, volumes: Mapping[str, PersistentVolume]) -> None:
        """Stop what is not to be cleaned any more, as these objects (by name) are now.

        If the object was removed by force, the cleaning goes on: half cleaned, the volume might
        pass for clean, and no object would be left to say that it is not.
        """
        for planned, stop in self._under_way:
            live = volumes.get(planned.metadata.name) if planned else None
            if planned is None or live is None:
                continue
            same = live.metadata.uid == planned.metadata.uid
            if not (same and is_to_be_cleaned(live)) and not stop.is_set():
                log.warning("%s is not to be cleaned any more: stopping", planned.metadata.name)
                stop.set()

    def end(self) -> None:
        """Stop all cleanings, also those that begin from now on."""
        self._ended = True
        for _, stop in self._under_way:
            stop.set()
