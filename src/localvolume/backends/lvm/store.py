"""A pool of logical volumes, thick ones of a volume group or thin ones of a thin pool in it.

The record of a volume is in its tags and nowhere else (``record``). The pool's id is the UUID of
the group, or of the thin pool.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

from localvolume.backends.capacity import capacity
from localvolume.backends.fstools import open_device
from localvolume.backends.lvm import copying, growing, making, removal
from localvolume.backends.lvm.engine import gated, is_down
from localvolume.backends.lvm.filesystem import usage_of
from localvolume.backends.lvm.kept import Kept
from localvolume.backends.lvm.making import entry_of, fs_of
from localvolume.backends.lvm.record import Entry, fields_of
from localvolume.backends.lvm.removal import in_state
from localvolume.backends.lvm.tools import Tools, translated
from localvolume.backends.lvm.turns import LOCKS, Turns
from localvolume.backends.lvm.view import NoPool, View, report_of
from localvolume.backends.lvm.zeroing import Zeroing
from localvolume.backends.model import (
    Abilities,
    BackendFailed,
    Blocks,
    Impossible,
    NoSpace,
    NotThisVolume,
    PoolReport,
    Progress,
    Record,
    Source,
    Usage,
    as_offered,
    outgrew,
)
from localvolume.backends.pool.root import PoolTaken
from localvolume.config.pools import PoolConfig
from localvolume.host.lvm.commands import device_path
from localvolume.host.mount.mounts import MountTable, read_mount_table
from localvolume.host.process.commandsync import Run
from localvolume.host.syscalls import closed_after
from localvolume.volumes.attributes import Attributes
from localvolume.volumes.lvtags import decode

R = TypeVar("R")

_BRINGING_UP_SECONDS: Final = 4.0
"""How long one look spends on activating volumes that somebody has deactivated."""


class LvmStore:
    """One pool of logical volumes; see ``store.Store``.

    `run` runs host commands for a worker thread. `locks` is a directory of the machine, with which
    its agents keep out of each other's pools. `zeroing`: how much of a raw volume one call zeroes.
    """

    def __init__(
        self, config: PoolConfig, run: Run, *, locks: str = LOCKS, zeroing: Zeroing | None = None
    ) -> None:
        if config.lvm is None or not config.lvm.group:
            raise Impossible(f"the pool {config.name} names no volume group")
        self.config = config
        self.locks = locks
        lvm = gated(config.lvm, run)
        self.tools = Tools(config.lvm, lvm, config, run, zeroing or Zeroing())
        self._session = LvmSession(self.tools, locks)
        self._attached = False

    # The pool

    def know(
        self,
        known_ids: Collection[str],
        known_places: Collection[str] = (),
        missing: Collection[str] = (),
    ) -> None:
        """Set the pool ids that PersistentVolumes name here. A group is never made anew."""
        self._session.known_ids = frozenset(known_ids)

    def open(self) -> str:
        """Prove and lock the pool; returns its id."""
        with self._session.using() as seen:
            return seen.id

    def close(self) -> None:
        """Release the pool to others once everything under way in it has ended."""
        self._session.close()

    def look(self) -> PoolReport:
        """See what is there; the report's `problem` says what is wrong."""
        try:
            with self._session.using(kept=True) as seen:
                troubles = self._session.bring_up(seen) if self._attached else []
                return report_of(
                    self.config.name,
                    seen,
                    abilities=self._abilities(),
                    usage=usage(seen),
                    troubles=troubles,
                )
        except (BackendFailed, ValueError) as error:
            return self.unseen(str(error), taken=isinstance(error.__cause__, PoolTaken))

    def unseen(self, problem: str, *, taken: bool = False) -> PoolReport:
        """The report of a pool that cannot be looked at now; no other pool shares its space."""
        return PoolReport(name=self.config.name, problem=problem, taken=taken)

    def attach_all(self) -> dict[str, str]:
        """Activate every volume after a reboot; returns what failed, by the volume's name."""
        failed = {}
        with self._session.using() as seen:
            for name, entry in seen.entries.items():
                if _is_attached(entry.record) and is_down(entry.volume):
                    try:
                        self._session.attach(entry)
                    except BackendFailed as error:
                        failed[name] = str(error)
        self._attached = True
        return failed

    def host_path(self, record: Record) -> str:
        """The path that the PersistentVolume names."""
        with translated(self.config.name):
            return device_path(self.tools.of.group, record.name)

    def _abilities(self) -> Abilities:
        why_not = "" if shutil.which("mkfs.ext4") else "there is no mkfs.ext4: install e2fsprogs"
        return Abilities(
            enforce=True,
            why_not=why_not,
            block=True,
            filesystem=not why_not,
            no_copies="" if self.tools.of.thin_pool else copying.THICK,
        )

    # A volume's life

    def make(self, record: Record) -> Record:
        """Make a volume as the record says, or complete what a crash left half made: it is `made`,
        or `offered` if a call asks for it.

        One that is made or offered already is activated and returned as it is. Its size is the one
        that LVM has given it. Raises NotThisVolume if another volume has its name, NoSpace,
        Impossible.
        """
        with self._session.using(record.name, kept=True) as seen:
            return making.make(self.tools, seen, record, self._session.take)

    def copy(self, record: Record, origin: Record) -> Record:
        """As `make`, with the content of another complete volume or snapshot of this pool.

        A snapshot gets no device: nobody can write to it.
        """
        with self._session.using(record.name, origin.name, kept=True) as seen:
            source = _living(seen, origin)
            if outgrew(source.record, record):
                raise BackendFailed(f"{origin.name} has grown meanwhile")
            return copying.copy(self.tools, seen, record, source, self._session.take)

    def blocks(self, record: Record, base: Record | None, start: int) -> Blocks:
        """Always raises: what a thin pool knows of its blocks is not asked for."""
        raise Impossible(
            f"{record.name} is a logical volume: which of its blocks have changed is not told"
        )

    def offered(
        self, record: Record, volume_uid: str = "", given: str = "", driver: str = ""
    ) -> Record:
        """Record that a PersistentVolume is asked for, before it is; later also record its UID,
        the claim that the volume was `given` to since it was made, and the CSI driver that pods use
        it through from now on."""
        with self._session.using(record.name) as seen:
            entry = _living(seen, record)
            known = entry.record
            offered = as_offered(known, volume_uid, given, driver)
            if offered != known:
                self.tools.retag(entry.volume, fields_of(offered))
            return offered

    def modify(self, record: Record, attributes: Attributes) -> Record:
        """Record the attributes of a complete volume, in place of those that it has."""
        with self._session.using(record.name) as seen:
            entry = _living(seen, record)
            modified = replace(entry.record, attributes=attributes)
            if modified != entry.record:
                self.tools.retag(entry.volume, fields_of(modified))
            return modified

    def grow(self, record: Record, size_bytes: int) -> Record:
        """Let a volume have at least that many bytes; one that has them is returned as it is."""
        with self._session.using(record.name) as seen:
            entry = _living(seen, record)
            if size_bytes <= entry.record.size_bytes:
                return entry.record
            return growing.grow(self.tools, seen, entry, size_bytes, self._session.take)

    def use(self, record: Record, act: Callable[[Source], R]) -> R:
        """Make a complete volume usable, and do `act` with it while nothing else is done with it.

        `act` raises nothing. Raises NotThisVolume for a volume that is not complete or is removed.
        """
        with self._session.using(record.name) as seen:
            entry = _living(seen, record)
            if entry.record.snapshot_of:
                raise NotThisVolume(f"{record.name} is a snapshot: nobody uses it")
            volume = self.tools.active(entry.volume)
            with closed_after(open_device(volume.path, volume.device)) as fd:
                known = entry.record
                return act(Source(record=known, fd=fd, device=volume.path, fs_type=fs_of(known)))

    def usage(self, record: Record) -> Usage | None:
        """What a volume holds now; None if nothing measures it."""
        with self._session.using() as seen:
            return _usage(_living(seen, record), read_mount_table())

    def adopt(self, name: str, directory: str, **fields: Any) -> Record:
        """Always raises: no older provisioner that we replace made `local` volumes of LVM's."""
        raise Impossible(f"{name}: a pool of logical volumes adopts nothing")

    # Its end

    def retire(self, record: Record) -> Record:
        """Deactivate it and record that it is `removed`. Does nothing if that was done before.

        Raises BackendFailed if it is in use, or has snapshots: classic ones go down with it.
        """
        with self._session.using(record.name) as seen:
            entry = entry_of(seen, record.name)
            if entry is None or entry.record.state == "making":
                raise NotThisVolume(f"{record.name} has no volume to remove")
            if entry.record.state == "removed":
                return entry.record
            removal.refuse_with_snapshots(record.name, seen.on(record.name))
            return removal.retire(self.tools, entry)

    def purge(
        self,
        record: Record,
        *,
        stop: threading.Event,
        files_per_second: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Remove a removed volume for good, overwritten or discarded as its class demands.

        Raises BackendFailed while it has snapshots. Does nothing if it is gone already.
        """
        with self._session.using(record.name) as seen:
            entry = entry_of(seen, record.name)
            if entry is None:
                return
            if entry.record.state != "removed":
                state = entry.record.state
                raise NotThisVolume(f"{record.name} is {state}: nothing of it is purged")
            removal.purge(self.tools, seen, entry, stop, progress)

    def forget(self, record: Record) -> None:
        """Let go of a volume: it stays, listed as an orphan, and its tags say whose it was."""
        with self._session.using(record.name) as seen:
            entry = entry_of(seen, record.name)
            if entry is not None:
                removal.forget(self.tools, seen, entry)

    def take_away(self, record: Record) -> None:
        """Remove a volume that nobody ever had: not offered, or certainly never written to.

        Raises NotThisVolume for any other.
        """
        with self._session.using(record.name) as seen:
            entry = entry_of(seen, record.name)
            if entry is None:
                return
            state = entry.record.state
            untouched = state != "offered" or removal.is_untouched(self.tools, entry)
            if state == "removed" or not untouched:
                raise NotThisVolume(f"{record.name} may hold data: it is not taken away")
            if state == "offered":
                entry = replace(entry, volume=self.tools.again(entry.volume))
            removal.take_away(self.tools, seen, entry)


def _living(seen: View, record: Record) -> Entry:
    """The complete volume of the record; raises NotThisVolume for any other."""
    entry = entry_of(seen, record.name)
    if entry is None or entry.record.state not in ("made", "offered"):
        state = "is not there" if entry is None else f"is {entry.record.state}"
        raise NotThisVolume(f"{record.name} {state}")
    return entry


def _is_attached(record: Record) -> bool:
    """Whether it must be active: nobody uses a snapshot."""
    return record.state in ("made", "offered") and not record.snapshot_of


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
    def using(self, *alone: str, kept: bool = False) -> Iterator[View]:
        """The pool as it is now, proven and locked; nothing else works with these volumes.

        With `kept`, the last look serves for as long as nothing can have changed since. What
        removes a volume never relies on that.
        """
        with translated(self._name):
            begun = self._turns.begin()
            with self._turns.alone(*alone):
                seen = self._read(kept=kept)
                with self._turns.holding(seen.id, begun) as fresh:
                    if fresh:
                        # See what another agent did until a moment ago, and how it ended.
                        self._tools.lvm.put_right(anew=True)
                        seen = self._read()
                    try:
                        yield self._up(seen)
                    finally:
                        if alone:
                            self._kept.changed()

    def _read(self, *, kept: bool = False) -> View:
        turn = self._turn
        seen = self._kept.view() if kept else None
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

    def bring_up(self, seen: View) -> list[str]:
        """Activate what somebody has deactivated since; returns sentences about failures."""
        until, failed, busy = time.monotonic() + _BRINGING_UP_SECONDS, [], self._turns.busy
        for name, entry in seen.entries.items():
            living = _is_attached(entry.record) and name not in busy
            if living and is_down(entry.volume) and time.monotonic() < until:
                try:
                    self.attach(entry)
                except BackendFailed as error:
                    if name not in self._turns.busy:
                        failed.append(f"{name} cannot be activated: {error}")
        return failed

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

    def take(self, seen: View, act: Callable[[View], None], more: int) -> None:
        """See ``tools.Take``."""
        with self._taking:
            if seen.turn != self._turn:
                seen = self._read()
            report = report_of(
                self._name, seen, abilities=Abilities(enforce=True), usage=usage(seen)
            )
            left = capacity(self._tools.config, report)
            if more > left:
                raise NoSpace(
                    f"the pool {self._name}: {more} bytes are needed, and {left} are left"
                )
            self._turn += 1
            act(seen)


def usage(seen: View) -> Mapping[str, Usage]:
    """By name: the filesystem's usage if known, else what a thin volume takes of its pool."""
    found = {}
    mounts = read_mount_table()
    for name, entry in seen.entries.items():
        if entry.record.state == "making":
            continue
        # A volume that cannot be measured now is left out.
        with suppress(OSError, BackendFailed):
            measured = _usage(entry, mounts)
            if measured is not None:
                found[name] = measured
    return found


def _usage(entry: Entry, mounts: MountTable) -> Usage | None:
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
