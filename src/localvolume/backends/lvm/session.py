"""The way into a pool of logical volumes: proven to be the right one, locked, and up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from localvolume.backends.capacity import room
from localvolume.backends.lvm.engine import is_down
from localvolume.backends.lvm.record import Entry
from localvolume.backends.lvm.removal import in_state
from localvolume.backends.lvm.tools import Tools, translated
from localvolume.backends.lvm.turns import Turns
from localvolume.backends.lvm.usage import usage
from localvolume.backends.lvm.view import NoPool, View, report_of
from localvolume.backends.model import Abilities, BackendFailed, NoRoom, NotThisVolume
from localvolume.volumes.lvtags import decode

_BRINGING_UP_SECONDS: Final = 4.0
"""How long one look spends with volumes that somebody has deactivated."""


class LvmSession:
    """Reads the pool anew for each call, as LVM may be used by others at any time."""

    def __init__(self, tools: Tools, locks: str) -> None:
        self._tools = tools
        self._name = tools.config.name
        self._turns = Turns(locks)
        #: Ids that PersistentVolumes of this node name for this pool; may be set anew.
        self.known_ids: frozenset[str] = frozenset()
        # The one that was found here stays the only right one for as long as this process lives.
        self._seen = ""
        self._taking = threading.Lock()
        self._turn = 0

    @property
    def busy(self) -> frozenset[str]:
        """The volumes and snapshots with which something is being done."""
        return self._turns.busy

    def close(self) -> None:
        """Let other agents have the pool, once what is under way in it has ended."""
        self._turns.close()

    @contextmanager
    def using(self, *alone: str) -> Iterator[View]:
        """The pool as it is now, proven and locked, alone with these volumes."""
        with translated(self._name):
            begun = self._turns.begin()
            with self._turns.alone(*alone):
                seen = self._read()
                with self._turns.holding(seen.id, begun) as fresh:
                    if fresh:
                        # Of another agent, what it did until a moment ago, and how it ended.
                        self._tools.lvm.put_right(anew=True)
                        seen = self._read()
                    yield self._up(seen)

    def _read(self) -> View:
        turn = self._turn
        seen = self._tools.read()
        known = self.known_ids | ({self._seen} if self._seen else set())
        if known and seen.id not in known:
            raise NoPool(
                f"this is {seen.id}, and PersistentVolumes name, or there was,"
                f" {', '.join(sorted(known))}: its disks are not there, or it was made anew"
            )
        self._seen = seen.id
        return replace(seen, turn=turn)

    def _up(self, seen: View) -> View:
        """With the thin pool active: it says nothing of how full it is until then."""
        if seen.pool is None or not is_down(seen.pool):
            return seen
        self._tools.active(seen.pool)
        return self._read()

    def bring_up(self, seen: View) -> list[str]:
        """Activate what somebody has deactivated since; sentences about what cannot be."""
        until, failed, busy = time.monotonic() + _BRINGING_UP_SECONDS, [], self._turns.busy
        for name, entry in seen.entries.items():
            living = entry.record.state in ("made", "offered") and name not in busy
            if living and is_down(entry.volume) and time.monotonic() < until:
                try:
                    self.attach(entry)
                except BackendFailed as error:
                    if name not in self._turns.busy:
                        failed.append(f"{name} cannot be activated: {error}")
        return failed

    def attach(self, entry: Entry) -> None:
        """Activate one volume if it still is to be."""
        with translated(self._name), self._turns.alone(entry.record.name):
            try:
                volume = self._tools.again(entry.volume)
            except NotThisVolume:
                return  # it has gone meanwhile
            if in_state("made", "offered")(decode(volume.tags)):
                self._tools.active(volume)

    def take(self, seen: View, act: Callable[[View], None], more: int) -> None:
        """See ``tools.Take``."""
        with self._taking:
            if seen.turn != self._turn:
                seen = self._read()
            report = report_of(
                self._name, seen, abilities=Abilities(enforce=True), usage=usage(seen)
            )
            left = room(self._tools.config, report)
            if more > left:
                raise NoRoom(f"the pool {self._name}: {more} bytes are needed, and {left} are left")
            self._turn += 1
            act(seen)
