"""A pool of volumes: its records and its acts, in an order that survives any crash."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from localvolume.backends.directory.backend import DirectoryBackend
from localvolume.backends.model import (
    Backend,
    BackendFailed,
    Blocks,
    Impossible,
    Lost,
    NotThisVolume,
    PoolReport,
    Progress,
    Record,
    Source,
    Usage,
    able_with,
    as_offered,
    check_hands,
    outgrew,
)
from localvolume.backends.pool import directories, grouping
from localvolume.backends.pool.layout import check_directory, overlapping, trash_name
from localvolume.backends.pool.making import (
    MakeContent,
    begin,
    complete,
    is_begun,
    take_away,
    tidy,
    unmake,
)
from localvolume.backends.pool.orphans import orphans
from localvolume.backends.pool.records import read_records
from localvolume.backends.pool.root import DIRECTORY, PoolTaken
from localvolume.backends.pool.session import OpenPool, Session
from localvolume.config.pools import PoolConfig
from localvolume.host.filesystem.errors import mounted_failure
from localvolume.host.mount.mounts import Mount, read_mount_table
from localvolume.host.tree.entries import device_number
from localvolume.volumes.attributes import Attributes

log = logging.getLogger(__name__)

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of a pool that is not open; see the same fields of `PoolReport`.

    Pools on one filesystem share its space. So each pool says which filesystem it is on, and one
    with a problem says what its records stand for: its volumes exist all the same.
    """

    filesystem: str = ""
    records: Mapping[str, Record] = field(default_factory=dict)
    uncounted: str = ""

    def report(self, name: str, problem: str, *, taken: bool = False) -> PoolReport:
        """The report of that pool with a problem."""
        return PoolReport(
            name=name,
            problem=problem,
            taken=taken,
            filesystem=self.filesystem,
            dormant=self.records,
            uncounted=self.uncounted,
        )


def filesystem_of(pool: int, mount: Mount | None) -> str:
    """The filesystem of an open pool, which lies in `mount`; raises OSError.

    Uses the mount table if it can: each subvolume of a btrfs has an st_dev of its own.
    """
    return mount.device if mount is not None else device_number(os.fstat(pool).st_dev)


def standing_of(config: PoolConfig) -> Standing:
    """Look at a pool that cannot be opened: nothing is written, locked or measured."""
    try:
        pool = os.open(config.mount_dir, DIRECTORY)
    except OSError:
        return Standing()  # nothing is there
    filesystem = ""
    try:
        path = os.readlink(f"/proc/self/fd/{pool}")
        filesystem = filesystem_of(pool, read_mount_table().holding(path))
        return Standing(filesystem=filesystem, records=read_records(pool).all())
    except FileNotFoundError:
        return Standing(filesystem=filesystem)  # no agent has made a pool of it yet
    except (OSError, ValueError) as error:
        return Standing(filesystem=filesystem, uncounted=str(error))
    finally:
        os.close(pool)


class PoolStore:
    """One pool of this node. Every method blocks; those for different volumes may run at once.

    All but `look` raise BackendFailed (or a subclass), and nothing else for what the disk says.
    Nothing is done in a pool that is not proved to be one of `known_ids`, nor while `why_not`
    returns a reason.
    """

    def __init__(
        self,
        config: PoolConfig,
        backend: Backend,
        *,
        known_ids: Collection[str] = (),
        why_not: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.config = config
        self._backend = backend
        # Older provisioners made plain directories, whatever the pool makes now.
        self._adopted = backend if backend.name == "directory" else DirectoryBackend()
        self._session = Session(config, known_ids, why_not=why_not)
        self._standing = Standing()

    # The pool

    def know(
        self,
        known_ids: Collection[str],
        known_places: Collection[str] = (),
        missing: Collection[str] = (),
    ) -> None:
        """See ``Store``; this counts when the pool is next opened."""
        self._session.known_ids = frozenset(known_ids)
        self._session.known_places = frozenset(known_places)
        self._session.missing = frozenset(missing)

    def open(self) -> str:
        """Open, prove and lock the pool, if that is not done yet; returns its id."""
        with self._session.using() as using:
            return using.root.id

    def close(self) -> None:
        """Release the pool to others once everything under way in it has ended."""
        self._session.close()

    def look(self) -> PoolReport:
        """See what is there; the report's `problem` says what is wrong."""
        name = self.config.name
        try:
            with self._session.using() as using:
                root, records = using.root, using.records
                records.refresh()
                found, unreadable = records.all(), records.unreadable()
                mount = root.mount()
                filesystem = filesystem_of(root.pool, mount)
                self._standing = Standing(filesystem=filesystem, records=found)
                unwell = str(mounted_failure(mount)) if mount is not None else ""
                usage = self._measure(using, found)
                # Read after the usage: what is written in between is then missing from both.
                space = root.space()
                return PoolReport(
                    name=name,
                    id=root.id,
                    total_bytes=space.total,
                    available_bytes=space.available,
                    used_bytes=space.used,
                    unwell=unwell,
                    warnings=[f"nothing is made there any more: {unwell}"] if unwell else (),
                    abilities=able_with(self._backend.abilities(root.pool, root.path), usage),
                    records=found,
                    usage=usage,
                    orphans=_orphans(using, found, unreadable),
                    unreadable=unreadable,
                    astray=self._astray(using, found),
                    filesystem=filesystem,
                )
        except (BackendFailed, OSError, ValueError) as error:
            taken = isinstance(error.__cause__, PoolTaken)
            self._standing = standing_of(self.config)
            return self._standing.report(name, str(error), taken=taken)

    def unseen(self, problem: str, *, taken: bool = False) -> PoolReport:
        """What the last look found, if the next one does not end; asks no disk."""
        return self._standing.report(self.config.name, problem, taken=taken)

    def _measure(self, using: OpenPool, records: Mapping[str, Record]) -> Mapping[str, Usage]:
        pool, path = using.root.pool, using.root.path
        ours = [one for one in records.values() if not one.adopted and one.state != "making"]
        adopted = [one for one in records.values() if one.adopted]
        return {
            **(self._backend.usage(pool, path, ours) if ours else {}),
            **(self._adopted.usage(pool, path, adopted) if adopted else {}),
        }

    def _astray(self, using: OpenPool, records: Mapping[str, Record]) -> list[str]:
        made = [one for one in records.values() if _is_attached(one) and not one.adopted]
        return self._backend.astray(using.root.pool, using.root.path, made) if made else []

    def _of(self, record: Record) -> Backend:
        return self._adopted if record.adopted else self._backend

    def host_path(self, record: Record) -> str:
        """The path that the PersistentVolume names."""
        return self._of(record).host_path(self.config.host_dir, self._session.id(), record)

    def attach_all(self) -> dict[str, str]:
        """Make every volume usable after a reboot; returns what failed, by the volume's name."""
        failed = {}
        with self._session.using() as using:
            for name, seen in using.records.all().items():
                if not _is_attached(seen):
                    continue
                try:
                    # With the current record: the volume may have grown since it was seen.
                    with self._session.alone(using, name) as known:
                        if known is not None and _is_attached(known):
                            self._of(known).attach(using.root.pool, using.root.path, known)
                except (BackendFailed, OSError) as error:
                    failed[name] = str(error)
        return failed

    # A volume's life

    def make(self, record: Record) -> Record:
        """Make a volume as the record says, or complete what a crash left half made: it is `made`.

        One that is made or offered already is returned as it is. Raises NotThisVolume if
        something else lies in its place, NoSpace, Impossible.
        """
        with self._session.doing(record.name) as (using, known):
            return self._make(using, known, record, self._backend.make)

    def copy(self, record: Record, origin: Record) -> Record:
        """As `make`, with the content of another complete volume or snapshot of this pool."""
        with (
            self._session.doing(record.name) as (using, known),
            self._session.alone(using, origin.name) as source,
        ):
            source = _living(origin, source)
            check_hands(source, origin)
            if source.adopted:
                raise Impossible(f"{source.name} is an older provisioner's: it is not copied")
            if outgrew(source, record):
                raise BackendFailed(f"{source.name} has grown meanwhile")

            def copy(pool: int, path: str, begun: Record) -> Record:
                return self._backend.copy(pool, path, begun, source)

            return self._make(using, known, record, copy)

    def blocks(self, record: Record, base: Record | None, start: int) -> Blocks:
        """What a snapshot holds from that byte on, or how it differs from another, the `base`."""
        with self._session.doing(record.name) as (using, known), ExitStack() as alone:
            known, other = _snapshot(record, known), None
            if base is not None and base.name == record.name:
                other = _snapshot(base, known)
            elif base is not None:
                found = alone.enter_context(self._session.alone(using, base.name))
                other = _snapshot(base, found)
            root = using.root
            return self._backend.blocks(root.pool, root.path, known, other, start)

    def _make(
        self, using: OpenPool, known: Record | None, record: Record, make: MakeContent
    ) -> Record:
        if known is not None and known.state == "making" and not is_begun(known, record):
            unmake(using, self._backend, known)
            known = None
        if known is None:
            known = begin(using, self._backend, record)
        elif known.state == "removed":
            raise NotThisVolume(f"{record.name} was removed, and is not purged yet")
        elif known.claim_uid != record.claim_uid:
            raise NotThisVolume(f"{record.name} was made for another claim")
        made = complete(using, self._backend, known, make) if known.state == "making" else known
        # Of a snapshot, this sees to it that nobody can write to it.
        self._backend.attach(using.root.pool, using.root.path, made)
        return made

    def cut_together(self, members: Sequence[tuple[Record, Record]]) -> Sequence[Record]:
        """Cut the snapshots of a group, each with its origin, at one moment."""
        with self._session.using() as using, ExitStack() as alone:
            found = []
            for record, origin in members:
                known = alone.enter_context(self._session.alone(using, record.name))
                source = alone.enter_context(self._session.alone(using, origin.name))
                source = _living(origin, source)
                check_hands(source, origin)
                found.append(grouping.Member(record, known, source))
            return grouping.cut_together(using, self._backend, found)

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
        with self._session.doing(record.name) as (using, known):
            known = _living(record, known)
            offered = as_offered(known, volume_uid, given, generation, driver)
            if known.group and known.state == "made":
                # Another agent may have cut it. Before anybody is told, nobody can write to it.
                self._backend.attach(using.root.pool, using.root.path, known)
            if offered != known:
                using.records.write(offered)
            return offered

    def modify(self, record: Record, attributes: Attributes) -> Record:
        """Record the attributes of a complete volume, in place of those that it has."""
        with self._session.doing(record.name) as (using, known):
            known = _living(record, known)
            modified = replace(known, attributes=attributes)
            if modified != known:
                using.records.write(modified)
            return modified

    def grow(self, record: Record, size_bytes: int) -> Record:
        """Let a volume have that many bytes; returns one that has them as it is."""
        with self._session.doing(record.name) as (using, known):
            known = _living(record, known)
            if size_bytes <= known.size_bytes:
                return known
            pool, path = using.root.pool, using.root.path
            grown = self._of(known).grow(pool, path, known, size_bytes)
            grown = replace(grown, size_bytes=size_bytes)
            using.records.write(grown)
            return grown

    def use(self, record: Record, act: Callable[[Source], R]) -> R:
        """Make a complete volume usable, and do `act` with it while nothing else is done with it.

        `act` raises nothing. Raises NotThisVolume for a volume that is not complete or is removed.
        """
        with self._session.doing(record.name) as (using, known):
            known = _living(record, known)
            if known.snapshot_of:
                raise NotThisVolume(f"{record.name} is a snapshot: nobody uses it")
            root = using.root
            with self._of(known).ready(root.pool, root.path, known) as source:
                return act(source)

    def usage(self, record: Record) -> Usage | None:
        """What a volume holds now; None if nothing measures it."""
        with self._session.using() as using:
            root = using.root
            return self._of(record).usage(root.pool, root.path, [record]).get(record.name)

    def adopt(self, name: str, directory: str, **fields: Any) -> Record:
        """Record a volume that an older provisioner made: it is `offered`.

        `fields` are what else is known for its record. Raises NotThisVolume if there is no
        directory, or if it is a link, a mount point or another volume's.
        """
        with self._session.doing(name) as (using, known):
            check_directory(directory)
            if known is not None:
                if known.directory != directory:
                    raise NotThisVolume(f"{name} is a volume at {known.directory!r}")
                return known
            record = Record(
                name=name,
                backend="directory",
                state="offered",
                directory=directory,
                adopted=True,
                **{"size_bytes": 0, "enforced": False, **fields},
            )
            with using.reserving:
                other = overlapping(directory, using.others(name).values())
                if other is not None:
                    raise NotThisVolume(f"{directory} is, or is in, or holds {other.name}")
                with directories.in_place(using.root.pool, record, directories.inode_of) as fd:
                    record = replace(record, inode=directories.inode_of(fd))
                using.records.write(record)
            return record

    # Its end

    def retire(self, record: Record) -> Record:
        """Move a volume into the trash, in one step: it is `removed`. May be repeated."""
        with self._session.doing(record.name) as (using, known):
            if known is None or known.state == "making":
                raise NotThisVolume(f"{record.name} has no volume to remove")
            if known.state == "removed":
                return known
            gone = replace(known, trash=trash_name(known), state="removed")
            try:
                self._of(known).retire(using.root.pool, using.root.path, gone)
            except Lost as error:
                if known.adopted:
                    raise  # nothing proves that this is the disk it was on
                log.warning("there is nothing to remove: %s", error)
            tidy(using, gone)
            # This must work on a full disk, too: removing is what frees space.
            using.records.write(gone, reserved=True)
            return gone

    def purge(
        self,
        record: Record,
        *,
        stop: threading.Event,
        files_per_second: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Delete a removed volume for good, its record last; does nothing if it has no record."""
        with self._session.doing(record.name) as (using, known):
            if known is None:
                return
            if known.state != "removed":
                raise NotThisVolume(f"{record.name} is {known.state}: nothing of it is purged")
            self._of(known).purge(
                using.root.pool,
                using.root.path,
                known,
                stop=stop,
                files_per_second=files_per_second,
                progress=progress,
            )
            tidy(using, known)
            using.records.delete(known.name)

    def forget(self, record: Record) -> None:
        """Delete only the record: the data stays and is listed as an orphan from now on."""
        with self._session.doing(record.name) as (using, known):
            if known is not None:
                using.records.delete(known.name)

    def take_away(self, record: Record) -> None:
        """Remove a volume that nobody ever had: not offered, or certainly never written to.

        Raises NotThisVolume for any other.
        """
        with self._session.doing(record.name) as (using, known):
            if known is None:
                return
            if known.adopted or known.state == "removed":
                raise NotThisVolume(f"{known.name} may hold data: it is not taken away")
            if known.state == "offered":
                pool, path = using.root.pool, using.root.path
                if not self._backend.is_untouched(pool, path, known):
                    raise NotThisVolume(f"{known.name} may hold data: it is not taken away")
            take_away(using, self._backend, known)


def _orphans(
    using: OpenPool, found: Mapping[str, Record], unreadable: Collection[str]
) -> Sequence[str]:
    """The names that neither the records `found` at the beginning of a look explain, nor those of
    now: volumes may be made, and purged, at any time during it."""
    pool = using.root.pool
    listed = orphans(pool, found, unreadable)
    if not listed:
        return listed
    # Read after the names: what one of them is of had its record, or was reserved, before it.
    still = set(orphans(pool, {**found, **using.volumes()}, unreadable))
    return [name for name in listed if name in still]


def _is_attached(record: Record) -> bool:
    """Whether it must be usable: nobody uses a snapshot."""
    return record.state in ("made", "offered") and not record.snapshot_of


def _living(record: Record, known: Record | None) -> Record:
    """The record of a complete volume; raises NotThisVolume for any other."""
    if known is None or known.state not in ("made", "offered"):
        state = "has no record" if known is None else f"is {known.state}"
        raise NotThisVolume(f"{record.name} {state}")
    return known


def _snapshot(record: Record, known: Record | None) -> Record:
    """The record of that very snapshot; raises NotThisVolume for any other."""
    known = _living(record, known)
    if not known.snapshot_of or known.cut_at != record.cut_at:
        raise NotThisVolume(f"{record.name} is not that snapshot any more")
    return known
