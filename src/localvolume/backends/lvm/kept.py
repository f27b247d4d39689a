"""The last look at a pool of logical volumes, kept for as long as nothing can have changed.

Where nobody makes, removes or writes anything, LVM is thus not asked again. What the kernel does
not tell (`host/lvm/traces.py`), such as a pool that LVM calls unhealthy after a while, is seen
anew after `KEPT_SECONDS`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from localvolume.backends.lvm.view import View
from localvolume.host.lvm.headers import headers
from localvolume.host.lvm.traces import Traces, traces

KEPT_SECONDS: Final = 600.0

READING_SECONDS: Final = 1.0
"""How long one who wants the headers waits for another who reads them."""


@dataclass(frozen=True, slots=True)
class _Look:
    view: View
    traces: Traces
    headers: tuple[bytes, ...] | None
    until: float
    changes: int


class Kept:
    """For one pool, used by all threads that work in it."""

    def __init__(self, group: str, seconds: float = KEPT_SECONDS) -> None:
        self._group = group
        self._seconds = seconds
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._changes = 0
        self._last: _Look | None = None
        self._disks: tuple[str, ...] = ()

    def view(self, *, recorded: bool = False) -> View | None:
        """The pool as it was seen last, if it still is so; None if LVM must be asked.

        With `recorded`, somebody may have written to its volumes since: how full they, the pool and
        reserves are is then out of date.
        """
        last = self._last
        if last is None or last.changes != self._changes or time.monotonic() > last.until:
            return None
        disks = last.view.group.disks
        now = traces(self._group, disks)
        if now == last.traces:
            return last.view
        if not recorded or now is None or not now.is_but_written(last.traces):
            return None
        as_before = last.headers is not None and self._headers(disks) == last.headers
        return last.view if as_before else None

    def look(self, read: Callable[[], View]) -> View:
        """Have the pool read anew, and keep what was seen."""
        # Before LVM reads: what changes meanwhile is seen then, or differs later.
        changes, disks = self._changes, self._disks
        before, recorded = traces(self._group, disks), self._headers(disks)
        view = read()
        self._disks = view.group.disks
        if before is not None and self._disks == disks:
            until = time.monotonic() + self._seconds
            self._last = _Look(view, before, recorded, until, changes)
        return view

    def _headers(self, disks: Sequence[str]) -> tuple[bytes, ...] | None:
        """What LVM has on record, None if that cannot be told now.

        A read of a disk that hangs cannot be given up, as LVM's commands can: it costs one thread
        for good, and must not cost one for each volume that is used.
        """
        if not self._reading.acquire(timeout=READING_SECONDS):
            return None
        try:
            return headers(disks)
        finally:
            self._reading.release()

    def changed(self) -> None:
        """Keep nothing that was seen until now: something of ours has changed the pool."""
        with self._lock:
            self._changes += 1
