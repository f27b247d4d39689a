"""A pool of logical volumes, thick ones of a volume group or thin ones of a thin pool in it.

The record of a volume is in its tags and nowhere else (``record``). The pool's id is the UUID of
the group, or of the thin pool.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from localvolume.backends.fstools import open_device
from localvolume.backends.lvm import changed, copying, growing, making, removal, together
from localvolume.backends.lvm.engine import gated, is_down
from localvolume.backends.lvm.making import entry_of, fs_of
from localvolume.backends.lvm.record import Entry, fields_of
from localvolume.backends.lvm.session import (
    LvmSession,
    is_attached,
    usage_now,
    usages,
    was_copied,
)
from localvolume.backends.lvm.survey import abilities_of
from localvolume.backends.lvm.tools import Tools, translated
from localvolume.backends.lvm.turns import LOCKS
from localvolume.backends.lvm.view import View, report_of
from localvolume.backends.lvm.zeroing import Zeroing
from localvolume.backends.model import (
    BackendFailed,
    Blocks,
    Impossible,
    NotThisVolume,
    PoolReport,
    Progress,
    Record,
    Source,
    Usage,
    as_offered,
    check_hands,
    outgrew,
)
from localvolume.backends.pool.root import PoolTaken
from localvolume.backends.still import FROZEN_SECONDS
from localvolume.config.pools import PoolConfig
from localvolume.host.lvm.commands import device_path
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.process.commandsync import Run
from localvolume.host.syscalls import closed_after
from localvolume.volumes.attributes import Attributes

R = TypeVar("R")


class LvmStore:
    """One pool of logical volumes; see ``store.Store``.

    `run` runs host commands for a worker thread. `locks` is a directory of the machine, with which
    its agents keep out of each other's pools. `zeroing`: how much of a raw volume one call zeroes.
    `still_seconds`: how long the volumes of a group may be held still.
    """

    def __init__(
        self,
        config: PoolConfig,
        run: Run,
        *,
        locks: str = LOCKS,
        zeroing: Zeroing | None = None,
        still_seconds: float = FROZEN_SECONDS,
    ) -> None:
        if config.lvm is None or not config.lvm.group:
            raise Impossible(f"the pool {config.name} names no volume group")
        self.config = config
        self.locks = locks
        lvm = gated(config.lvm, run)
        self.tools = Tools(config.lvm, lvm, config, run, zeroing or Zeroing())
        self._session = LvmSession(self.tools, locks)
        self._attached = False
        self._still_seconds = still_seconds

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
                troubles = self._session.let_go(seen)
                troubles += self._session.bring_up(seen) if self._attached else []
                return report_of(
                    self.config.name,
                    seen,
                    abilities=abilities_of(self.tools.of),
                    usage=usages(seen),
                    troubles=troubles,
                )
        except (BackendFailed, ValueError) as error:
            return self.unseen(str(error), taken=isinstance(error.__cause__, PoolTaken))

    def unseen(self, problem: str, *, taken: bool = False) -> PoolReport:
        """The report of a pool that cannot be looked at now; no other pool shares its space."""
        return PoolReport(name=self.config.name, problem=problem, taken=taken)

    def attach_all(self) -> dict[str, str]:
        """Activate every volume after a reboot; returns what failed, by the volume's name.

        A snapshot that was being copied has its device no longer.
        """
        failed = {}
        with self._session.using() as seen:
            for name, entry in seen.entries.items():
                try:
                    if is_attached(entry.record) and is_down(entry.volume):
                        self._session.attach(entry)
                    elif was_copied(entry):
                        self._session.detach(entry)
                except BackendFailed as error:
                    failed[name] = str(error)
        self._attached = True
        return failed

    def host_path(self, record: Record) -> str:
        """The path that the PersistentVolume names."""
        with translated(self.config.name):
            return device_path(self.tools.of.group, record.name)

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

        A snapshot gets no device, or one that cannot be written to. Raises GoesOn while a thick
        volume is copied, after each part of it.
        """
        with self._session.using(record.name, origin.name, kept=True) as seen:
            source = _living(seen, origin)
            check_hands(source.record, origin)
            if outgrew(source.record, record):
                raise BackendFailed(f"{origin.name} has grown meanwhile")
            return copying.copy(self.tools, seen, record, source, self._session.take)

    def blocks(self, record: Record, base: Record | None, start: int) -> Blocks:
        """What a thin snapshot holds from that byte on, or how it differs from another, the `base`.

        Raises Impossible for thick ones, and whenever the pool does not tell; Busy while somebody
        else reads the pool's metadata.
        """
        both = {record.name, record.name if base is None else base.name}
        with self._session.using(*both) as seen:
            mine = _living(seen, record).volume
            other = None if base is None else _living(seen, base).volume
            return changed.blocks(self.tools, seen, mine, other, start)

    def cut_together(self, members: Sequence[tuple[Record, Record]]) -> Sequence[Record]:
        """Cut the snapshots of a group, each with its origin, at one moment: thin ones alone."""
        with self._session.using(*{one.name for pair in members for one in pair}) as seen:
            found = [together.Member(record, _living(seen, one)) for record, one in members]
            for member, (_, origin) in zip(found, members, strict=True):
                check_hands(member.origin.record, origin)
            return together.cut_together(
                self.tools, seen, found, self._session.take, self._still_seconds
            )

    def offered(
        self,
        record: Record,
        volume_uid: str = "",
        given: str = "",
        generation: int = 0,
        driver: str = "",
    ) -> Record:
        """Record that a PersistentVolume is asked for, before it is; later also record its UID,
        the claim that the volume was `given` to since it was made, with the count of that, and the
        CSI driver that pods use it through from now on."""
        with self._session.using(record.name) as seen:
            entry = _living(seen, record)
            known = entry.record
            offered = as_offered(known, volume_uid, given, generation, driver)
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
        with self._session.using(record.name, recorded=True) as seen:
            entry = _living(seen, record)
            if entry.record.snapshot_of:
                raise NotThisVolume(f"{record.name} is a snapshot: nobody uses it")
            volume = self._session.active(entry)
            with closed_after(open_device(volume.path, volume.device)) as fd:
                known = entry.record
                return act(Source(record=known, fd=fd, device=volume.path, fs_type=fs_of(known)))

    def usage(self, record: Record) -> Usage | None:
        """What a volume holds now; None if nothing measures it."""
        with self._session.using(kept=True) as seen:
            return usage_now(_living(seen, record), read_mount_table())

    def adopt(self, name: str, directory: str, **fields: Any) -> Record:
        """Always raises: no older provisioner that we replace made `local` volumes of LVM's."""
        raise Impossible(f"{name}: a pool of logical volumes adopts nothing")

    # Its end

    def retire(self, record: Record) -> Record:
        """Deactivate it and record that it is `removed`. Does nothing if that was done before.

        Snapshots with a reserve keep its data: it is purged after them. Raises BackendFailed if it
        is in use, or has other classic snapshots, which would go down with it.
        """
        with self._session.using(record.name) as seen:
            entry = entry_of(seen, record.name)
            if entry is None or entry.record.state == "making":
                raise NotThisVolume(f"{record.name} has no volume to remove")
            if entry.record.state == "removed":
                return entry.record
            others = set(seen.on(record.name)) - set(seen.kept_on(record.name))
            removal.refuse_with_snapshots(record.name, others)
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
