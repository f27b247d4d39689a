"""Access to a pool of logical volumes: proven to be the right one, locked, and its thin pool up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from localvolume.backends.capacity import capacity
from localvolume.backends.lvm.engine import is_down
from localvolume.backends.lvm.filesystem import usage_of
from localvolume.backends.lvm.kept import Kept
from localvolume.backends.lvm.making import fs_of
from localvolume.backends.lvm.record import Entry
from localvolume.backends.lvm.removal import in_state
from localvolume.backends.lvm.tools import Tools, translated
from localvolume.backends.lvm.turns import Turns
from localvolume.backends.lvm.view import NoPool, View, report_of
from localvolume.backends.model import (
    Abilities,
    BackendFailed,
    NoSpace,
    NotThisVolume,
    Record,
    Usage,
)
from localvolume.host.lvm.commands import LogicalVolume
from localvolume.host.lvm.errors import LvmFailed
from localvolume.host.lvm.report import BadReport
from localvolume.host.lvm.thinmetadata import READING
from localvolume.host.mount.mounts import MountTable, read_mount_table
from localvolume.volumes.lvtags import decode

_BRINGING_UP_SECONDS: Final = 4.0
"""How long one look spends on activating volumes that somebody has deactivated."""


def is_attached(record: Record) -> bool:
    """Whether it must be active: nobody uses a snapshot, but a reserve is looked at."""
    shown = not record.snapshot_of or bool(record.reserve_bytes)
    return record.state in ("made", "offered") and shown


def was_copied(entry: Entry) -> bool:
    """Whether it is a snapshot with a device, as one of a thick volume has while it is copied."""
    known, volume = entry.record, entry.volume
    living = known.state in ("made", "offered")
    return living and bool(known.snapshot_of) and volume.kind == "thick" and volume.active


class LvmSession:
    """Access to a pool that is proven to be the right one, locked and active.

    Others may use LVM at any time: the pool is read again for each call, or has not changed.
    """

    def __init__(self, tools: Tools, locks: str) -> None:
        self._tools = tools
        self._name = tools.config.name
        self._turns = Turns(locks)
        #: Ids that PersistentVolumes of this node name for this pool; they may be set again.
        self.known_ids: frozenset[str] = frozenset()
        # The id that was found here stays the only right one for the life of this process.
        self._seen = ""
        self._taking = threading.Lock()
        self._turn = 0
        self._kept = Kept(tools.of.group)

    def close(self) -> None:
        """Release the pool to other agents once everything under way in it has ended."""
        self._turns.close()

    @contextmanager
    def using(self, *alone: str, kept: bool = False, recorded: bool = False) -> Iterator[View]:
        """The pool as it is now, proven and locked; nothing else works with these volumes.

        With `kept`, the last look serves for as long as nothing can have changed since. What
        removes a volume never relies on that. With `recorded`, for a caller who changes nothing, it
        serves until what LVM has on record may have changed: how full they are may be out of date.
        """
        with translated(self._name):
            begun = self._turns.begin()
            with self._turns.alone(*alone):
                seen = self._read(kept=kept, recorded=recorded)
                with self._turns.holding(seen.id, begun) as fresh:
                    if fresh:
                        # See what another agent did until a moment ago, and how it ended.
                        self._tools.lvm.put_right(anew=True)
                        seen = self._read()
                    try:
                        yield self._up(seen)
                    finally:
                        if alone and not recorded:
                            self._kept.changed()

    def _read(self, *, kept: bool = False, recorded: bool = False) -> View:
        turn = self._turn
        seen = self._kept.view(recorded=recorded) if kept or recorded else None
        if seen is None:
            seen = self._kept.look(lambda: replace(self._tools.read(), turn=turn))
        known = self.known_ids | ({self._seen} if self._seen else set())
        if known and seen.id not in known:
            raise NoPool(
                f"this is {seen.id}, and PersistentVolumes name, or there was,"
                f" {', '.join(sorted(known))}: its disks are not there, or it was made anew"
            )
        self._seen = seen.id
        return seen

    def _up(self, seen: View) -> View:
        """Activate the thin pool: until then it does not say how full it is."""
        if seen.pool is None or not is_down(seen.pool):
            return seen
        self._tools.active(seen.pool)
        return self._read()

    def let_go(self, seen: View) -> list[str]:
        """Release the thin pool's metadata if one of ours was killed while it read them; returns
        sentences about failures."""
        if seen.pool is None or READING not in seen.pool.tags or self._tools.lvm.is_reading():
            return []
        try:
            self._tools.lvm.release_left(seen.pool)
        except (LvmFailed, BadReport, OSError) as error:
            return [f"the metadata of {seen.pool.full_name} are still held: {error}"]
        self._kept.changed()
        return []

    def bring_up(self, seen: View) -> list[str]:
        """Activate what somebody has deactivated since; returns sentences about failures."""
        until, failed, busy = time.monotonic() + _BRINGING_UP_SECONDS, [], self._turns.busy
        for name, entry in seen.entries.items():
            living = is_attached(entry.record) and name not in busy
            if living and is_down(entry.volume) and time.monotonic() < until:
                try:
                    self.attach(entry)
                except BackendFailed as error:
                    if name not in self._turns.busy:
                        failed.append(f"{name} cannot be activated: {error}")
        return failed

    def active(self, entry: Entry) -> LogicalVolume:
        """The volume with its device, activated if need be; the caller keeps others from it."""
        try:
            return self._tools.active(entry.volume)
        finally:
            if is_down(entry.volume):
                self._kept.changed()

    def attach(self, entry: Entry) -> None:
        """Activate one volume, if it still is made or offered."""
        with translated(self._name), self._turns.alone(entry.record.name):
            try:
                volume = self._tools.again(entry.volume)
            except NotThisVolume:
                return  # it has gone meanwhile
            if in_state("made", "offered")(decode(volume.tags)):
                self._tools.active(volume)
                self._kept.changed()

    def detach(self, entry: Entry) -> None:
        """Deactivate one volume."""
        with translated(self._name), self._turns.alone(entry.record.name):
            self._tools.lvm.deactivate(self._tools.again(entry.volume))
            self._kept.changed()

    def take(self, seen: View, act: Callable[[View], None], more: int) -> None:
        """See ``tools.Take``."""
        with self._taking:
            if seen.turn != self._turn:
                seen = self._read()
            report = report_of(
                self._name, seen, abilities=Abilities(enforce=True), usage=usages(seen)
            )
            left = capacity(self._tools.config, report)
            if more > left:
                raise NoSpace(
                    f"the pool {self._name}: {more} bytes are needed, and {left} are left"
                )
            self._turn += 1
            act(seen)


def usages(seen: View) -> Mapping[str, Usage]:
    """By name: the filesystem's usage if known, else what a thin volume takes of its pool."""
    found = {}
    mounts = read_mount_table()
    for name, entry in seen.entries.items():
        if entry.record.state == "making":
            continue
        # A volume that cannot be measured now is left out.
        with suppress(OSError, BackendFailed):
            measured = usage_now(entry, mounts)
            if measured is not None:
                found[name] = measured
    return found


def usage_now(entry: Entry, mounts: MountTable) -> Usage | None:
    """That of one volume; None if nothing measures it."""
    if entry.record.snapshot_of:
        holds = entry.record.holds_bytes
        return Usage(used_bytes=holds, available_bytes=0, outstanding_bytes=0)
    volume, fs = entry.volume, fs_of(entry.record)
    # Reading a suspended device would block for as long as it is suspended.
    usable = volume.active and not volume.suspended and volume.device
    if fs and usable and entry.record.state != "removed":
        measured = usage_of(volume.path, volume.device, fs, mounts)
        if measured is not None:
            return measured
    if volume.kind == "thin" and volume.data_percent is not None:
        return Usage(used_bytes=int(volume.size_bytes * volume.data_percent / 100))
    return None
