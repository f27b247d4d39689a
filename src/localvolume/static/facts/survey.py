"""What is there: the entries of the discovery directories, read again only if something changed.

A mount that is still the same mount need not be read again, so a look at a thousand quiet volumes
costs two reads of the kernel's tables and a thousand comparisons.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localvolume.cleaning.unfinished import LABEL as UNFINISHED_LABEL
from localvolume.config.model import ClassConfig
from localvolume.host.block.blockdev import (
    NotABlockDevice,
    Signature,
    SignatureUnknown,
    read_signature,
)
from localvolume.host.mount.mounts import Mount, MountSnapshot, MountTable
from localvolume.host.process.commands import CommandMissing, CommandTimedOut
from localvolume.host.process.commandsync import on_loop
from localvolume.host.process.workers import Hung, Workers
from localvolume.host.tree import entries as host_entries
from localvolume.static.facts.known import Changes, Known
from localvolume.static.facts.probe import probe
from localvolume.static.facts.readings import Readings
from localvolume.static.model import Content, Entry, Problem
from localvolume.static.paces import StaticPaces
from localvolume.static.plan.content import offers_formatted
from localvolume.static.recording import Records
from localvolume.volumes.identity import is_within
from localvolume.volumes.record import Recorded

if TYPE_CHECKING:
    from localvolume.config.pools import LvmConfig

READERS = 16
"""How many entries a look reads at the same time."""

READING = Problem("reading", "its content is still being read")

EXT = ("ext2", "ext3", "ext4")
"""What libblkid calls the filesystems that can be looked into without a mount."""

POD_MOUNTS = "/volumes/kubernetes.io~local-volume/"
"""Part of every path at which kubelet mounts a local volume for a pod."""


class PodsUnseen(Exception):
    """Nobody can tell whether a pod has the volume mounted: nothing on it may be destroyed."""


@dataclass(frozen=True, slots=True)
class Found:
    """One look at the discovery directories; `problems` are classes that could not be listed.

    `pods_unseen` says why nobody can tell what pods have mounted; None if that is seen.
    """

    entries: list[Entry] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    pods_unseen: str | None = None


class Survey:
    """The discovery directories of the configured classes, with what is known of their entries.

    `kubelet_directory` is where the mounts of pods are, None if no kubelet has any. Without
    `records`, none are read. `readers` are the threads that read what is not offered, so that an
    unknown disk takes no thread from the others. `look_again` is called when something is known
    that the last look did not wait for; without it, each look waits for all readings.
    """

    def __init__(
        self,
        workers: Workers,
        paces: StaticPaces | None = None,
        *,
        kubelet_directory: str | None = None,
        records: Records | None = None,
        readers: Workers | None = None,
        look_again: Callable[[], object] | None = None,
    ) -> None:
        self._kubelet_directory = kubelet_directory
        self._records = records
        self._recorded: Counter[str] = Counter()
        self._workers = workers
        self._readers = readers or workers
        self._paces = paces or StaticPaces()
        self._look_again = look_again or (lambda: None)
        self._readings = Readings(
            lambda entry, mount: self.read(entry, mount, offered=False),
            patience=self._paces.patience if look_again else None,
            ended=self._look_again,
        )
        self._known: dict[tuple[str, str], Known] = {}
        self._classes: Mapping[str, ClassConfig] = {}
        self._groups: Sequence[LvmConfig] = ()
        self._names: dict[str, list[str]] = {}
        self._inodes: dict[str, _Inode] = {}
        """Which directory was listed, by the class's name."""
        self._problems: dict[str, str] = {}
        self._listed_at = 0.0
        """When the directories were listed last (time.monotonic)."""
        self._table = MountTable([])
        self._snapshot: MountSnapshot | None = None
        self._reading = asyncio.Lock()
        self.probes_total = 0

    async def look(
        self,
        classes: Mapping[str, ClassConfig],
        offered: Collection[str],
        changes: Changes,
        groups: Sequence[LvmConfig] = (),
    ) -> Found:
        """All entries of these classes; those that may have changed are read again.

        What was made for a claim in one of these volume groups is no usable entry.

        `offered` holds the host paths of all PersistentVolumes: an entry that lost its
        PersistentVolume is read again, with what lies in it.
        """
        if self._groups != groups:
            self._groups = groups
            self._known.clear()
            self._readings.outdate()
        self._classes = classes
        self._readings.changed(changes)
        self._take_readings()
        listed = self._names.keys() | self._problems.keys()
        if changes.host or changes.everything or classes.keys() != listed or self._list_is_stale():
            await self._list(classes)
        entries: list[Entry] = []
        unread: list[tuple[Entry, Mount | None]] = []
        for class_name, names in self._names.items():
            config = classes[class_name]
            for name in names:
                path, host_path = f"{config.mount_dir}/{name}", f"{config.host_dir}/{name}"
                mount = self._table.at(path)
                known = self._known.get((class_name, name))
                is_offered = host_path in offered
                if is_offered:
                    # It may get a claim, and a tenant's data, before the reading has ended.
                    self._readings.outdate(path)
                if not is_offered and not config.matches(name):
                    entries.append(Entry(class_name, name, path, host_path, excluded=True))
                elif known and known.is_fresh(mount, is_offered, changes, self._paces.stale):
                    entries.append(known.entry)
                else:
                    unread.append((Entry(class_name, name, path, host_path), mount))
        entries.extend(await self._read_all(unread, offered))
        problems = dict(self._problems)
        for name in {one.class_name for one in entries if one.problem and one.problem.is_absence}:
            if not await self._is_in_place(classes[name]):
                # Then the directory itself is gone. It is listed again at the next look.
                del self._names[name]
                entries = [entry for entry in entries if entry.class_name != name]
                directory = classes[name].mount_dir
                problems[name] = f"the discovery directory {directory} was moved during the look"
                self._look_again()
        there = {(entry.class_name, entry.name) for entry in entries}
        for key in self._known.keys() - there:
            del self._known[key]
        unseen = await self._pods_unseen(self._table)
        return Found([self._as_recorded(entry) for entry in entries], problems, unseen)

    async def _is_in_place(self, config: ClassConfig) -> bool:
        """Whether the directory is still the one that was listed."""
        directory = config.mount_dir
        try:
            found = await self._workers.call(directory, self._paces.directory, _inode_of, directory)
        except (OSError, Hung):
            return False
        return found == self._inodes[config.name]

    def _as_recorded(self, entry: Entry) -> Entry:
        """The entry with what is on record now: while other entries were read, an act may have
        written that, and published what the older record does not know of."""
        known = self._known.get((entry.class_name, entry.name))
        if known is None or known.entry.recorded == entry.recorded:
            return entry
        return dataclasses.replace(entry, recorded=known.entry.recorded)

    def _list_is_stale(self) -> bool:
        """Whether to try again what could not be listed: nothing reports that it can be now."""
        age = time.monotonic() - self._listed_at
        return bool(self._problems) and age >= self._paces.stale

    async def _list(self, classes: Mapping[str, ClassConfig]) -> None:
        self._names, self._problems = {}, {}
        found = await asyncio.gather(*(self._listed(config) for config in classes.values()))
        self._listed_at = time.monotonic()
        for name, listed in zip(classes, found, strict=True):
            if isinstance(listed, str):
                self._problems[name] = listed
            else:
                self._inodes[name], self._names[name] = listed
        # Read after the listing, so that a mount made in between is seen with its name. Read anew,
        # as a moved directory takes the mounts below it along, and the kernel reports none of them.
        self._table = await self._mount_table(anew=True)
        for name in [name for name in self._names if not self._hears_of(classes[name])]:
            del self._names[name]
            self._problems[name] = (
                f"the discovery directory {classes[name].mount_dir} is mounted without propagation:"
                " what the host mounts and unmounts there is not seen here; its volumeMount needs"
                " mountPropagation: HostToContainer"
            )

    async def _listed(self, config: ClassConfig) -> tuple[_Inode, list[str]] | str:
        """The class's directory and the names in it, or why it cannot be listed."""
        directory = config.mount_dir
        try:
            return await self._workers.call(directory, self._paces.directory, _listed, directory)
        except (OSError, Hung) as error:
            return _directory_problem(config, error)

    def _hears_of(self, config: ClassConfig) -> bool:
        return self._table.hears_of(config.mount_dir)

    async def _pods_unseen(self, table: MountTable) -> str | None:
        """Why the mounts of pods cannot be seen, or None."""
        directory = self._kubelet_directory
        if directory is None:
            return None
        seen = await self._workers.call(
            directory, self._paces.directory, os.path.isdir, f"{directory}/pods"
        )
        if seen and table.hears_of(directory):
            return None
        what = "is mounted without propagation" if seen else "is not here"
        return (
            f"what pods have mounted cannot be seen: the kubelet's directory {directory} {what};"
            " mount it with mountPropagation: HostToContainer, or name another one by KUBELET_DIR"
        )

    async def _mount_table(self, *, anew: bool = False) -> MountTable:
        """The current mount table: read again if asked to, or if the kernel says that it changed.

        So a thousand acts that all look before they write cost one reading, not a thousand.
        """
        # A caller that comes during a reading waits, then asks the kernel if that is current.
        async with self._reading:
            if self._snapshot is not None and not anew and self._snapshot.is_current():
                return self._snapshot.table
            snapshot = await self._workers.call("mount table", self._paces.directory, MountSnapshot)
            if self._snapshot is not None:
                self._snapshot.close()
            self._snapshot = snapshot
        if not snapshot.table.settled:
            # A mount that is not in it may still be there: its absence proves nothing.
            raise Hung(
                "mount table", self._paces.directory, "the mounts of this node keep changing"
            )
        return snapshot.table

    async def _read_all(
        self, unread: Sequence[tuple[Entry, Mount | None]], offered: Collection[str]
    ) -> list[Entry]:
        """Read these entries and remember what they are, `READERS` at a time.

        Reading all at once would cost 4 kB for each that waits, and at the start all are read.
        Offered entries are always waited for: only what they are is read, not what lies in them.
        """
        read: dict[tuple[str, str], Entry] = {}
        remaining = iter(unread)

        async def reader() -> None:
            for entry, mount in remaining:
                if entry.host_path in offered:
                    fresh = await self.read(entry, mount, offered=True)
                    key = entry.class_name, entry.name
                    self._known[key] = Known(fresh, mount, time.monotonic())
                    read[key] = fresh
                else:
                    await self._readings.wait_for(entry, mount)

        await asyncio.gather(*(reader() for _ in range(min(READERS, len(unread)))))
        read |= self._take_readings()
        return [
            read.get((entry.class_name, entry.name)) or self._being_read(entry, mount)
            for entry, mount in unread
        ]

    def _take_readings(self) -> dict[tuple[str, str], Entry]:
        """Remember what readings have found, and return the part that still holds."""
        read = {}
        for key, known in self._readings.take().items():
            self._known[key] = known
            if not known.outdated:
                read[key] = known.entry
            else:
                # It is read once more.
                self._look_again()
        return read

    def _being_read(self, entry: Entry, mount: Mount | None) -> Entry:
        """The entry while it is being read: what could not be told before still cannot."""
        known = self._known.get((entry.class_name, entry.name))
        if known is None or known.mount != mount:
            return dataclasses.replace(entry, problem=READING)
        if known.untold:
            return known.entry
        # It is still known where else its data can be reached.
        return dataclasses.replace(known.entry, content=None, problem=READING)

    async def stop(self) -> None:
        """Cancel the readings under way."""
        await self._readings.stop()

    async def read(self, entry: Entry, mount: Mount | None, *, offered: bool) -> Entry:
        """Read one entry from the host now, within a deadline; failures are in what it returns."""
        self.probes_total += 1
        bare = Entry(entry.class_name, entry.name, entry.path, entry.host_path)
        workers = self._workers if offered else self._readers
        try:
            while True:
                written = self._recorded[entry.path]
                fresh = await workers.call(
                    entry.path, self._paces.entry, self._probe, bare, mount, offered
                )
                # A record that was written meanwhile may have been read before or after.
                if written == self._recorded[entry.path]:
                    break
        except Hung as error:
            return dataclasses.replace(bare, problem=Problem("unknown", str(error)))
        if fresh.kind == "block" and (found := await self._claimed(fresh)):
            return dataclasses.replace(bare, problem=found)
        free = fresh.content is not None and fresh.content.state in ("empty", "traces")
        if fresh.kind == "block" and free and (held := await self._signature(fresh)):
            return dataclasses.replace(fresh, content=held)
        return fresh

    def _probe(self, bare: Entry, mount: Mount | None, offered: bool) -> Entry:
        fresh = probe(bare, mount, offered=offered)
        if fresh.problem is not None or self._records is None:
            return fresh
        return dataclasses.replace(fresh, recorded=self._records.read(fresh))

    def recorded(self, entry: Entry, recorded: Recorded) -> None:
        """Remember what is on record of the volume, as just written or read."""
        self._recorded[entry.path] += 1
        self._readings.outdate(entry.path)
        known = self._known.get((entry.class_name, entry.name))
        if known is not None:
            known.entry = dataclasses.replace(known.entry, recorded=recorded)

    async def read_now(self, entry: Entry, *, offered: bool) -> Entry:
        """The same with the mount table of this very moment, for an act to rely on."""
        mount = (await self._mount_table(anew=offered)).at(entry.path)
        fresh = await self.read(entry, mount, offered=offered)
        # The next plan is made from this, not from what it disproved.
        self._readings.outdate(entry.path)
        self._known[entry.class_name, entry.name] = Known(fresh, mount, time.monotonic())
        return fresh

    async def mounted_by_pods(self, entry: Entry) -> list[str]:
        """Where kubelet still has this volume mounted for pods.

        A pod that was deleted by force may go on running, and writing, after its claim is gone.
        Raises PodsUnseen if nobody can tell for a filesystem; a device itself shows that it is in
        use.
        """
        table = await self._mount_table(anew=True)
        if entry.kind == "filesystem" and (unseen := await self._pods_unseen(table)):
            raise PodsUnseen(unseen)
        return [
            mount.mount_point
            for mount in table.of_device(entry.device)
            if POD_MOUNTS in mount.mount_point and is_within(mount.root, entry.root)
        ]

    def forget(self, path: str) -> None:
        """Forget what was known of the entry at this path: its content was changed."""
        self._readings.outdate(path)
        for key in [key for key, known in self._known.items() if known.entry.path == path]:
            del self._known[key]

    async def _claimed(self, entry: Entry) -> Problem | None:
        """Why the device cannot be offered or cleaned as an entry: it was made for a claim."""
        if not self._groups:
            return None
        # Imported now: an agent without logical volumes need not load the code that asks LVM.
        from localvolume.host.lvm.commands import LOOK_SECONDS, BadReport, LvmFailed
        from localvolume.static.facts.claimed import made_for_claims

        run = on_loop(asyncio.get_running_loop())
        groups = self._groups
        try:
            made = await self._readers.call(
                entry.path, LOOK_SECONDS, lambda: made_for_claims(entry.device, groups, run)
            )
        except (LvmFailed, BadReport, OSError, Hung) as error:
            return Problem("unknown", f"it is not known whether it was made for a claim: {error}")
        if not made:
            return None
        return Problem("unknown", f"it is the logical volume {made}, which was made for a claim")

    async def _signature(self, entry: Entry) -> Content | None:
        """What lies in the device by its signature; None if it has none."""
        try:
            signature = await read_signature(entry.path)
        except (
            OSError,
            NotABlockDevice,
            SignatureUnknown,
            CommandMissing,
            CommandTimedOut,
        ) as error:
            return Content("unknown", f"its signature cannot be read: {error}")
        if signature is None:
            return None
        if signature.label == UNFINISHED_LABEL:
            return Content("unfinished", "the remains of an unfinished cleaning")
        label = f" {signature.label!r}" if signature.label else ""
        found = f"a signature: {signature.type}{label}"
        config = self._classes.get(entry.class_name)
        if config is None or not _may_be_empty(signature, config):
            return Content("holds", found)
        if not offers_formatted(signature.type, config):
            wanted = f"fsType {config.fs_type}" if config.fs_type else "no fsType"
            return Content("holds", f"{found}, and its class says {wanted}")
        return await self._filesystem(entry, signature.type, found)

    async def _filesystem(self, entry: Entry, fs_type: str, found: str) -> Content:
        """Whether the ext filesystem on a device is as empty as mkfs leaves it."""
        # Imported now: an agent whose devices have no filesystem need not load it.
        from localvolume.host.filesystem.extempty import LOOK_SECONDS, CannotTell, why_not_empty

        run = on_loop(asyncio.get_running_loop())
        try:
            why_not = await self._readers.call(
                entry.path, LOOK_SECONDS, lambda: why_not_empty(entry.path, entry.device, run)
            )
        except (CannotTell, NotABlockDevice, OSError, Hung) as error:
            return Content("unknown", f"{found}; it is not known whether it is empty: {error}")
        if why_not:
            return Content("holds", f"{found}, {why_not}")
        return Content("formatted", f"an empty {fs_type}", fs_type)


def _may_be_empty(signature: Signature, config: ClassConfig) -> bool:
    """Whether it is a filesystem that can be looked into, and the class wants to know."""
    wants = config.first_use == "require-empty" and config.volume_mode == "Filesystem"
    return wants and signature.type in EXT


_Inode = tuple[int, int]
"""Device and inode of a directory."""


def _inode_of(directory: str) -> _Inode:
    found = os.stat(directory)
    return found.st_dev, found.st_ino


def _listed(directory: str) -> tuple[_Inode, list[str]]:
    """Which directory it is, and the names in it. Raises OSError."""
    return _inode_of(directory), [entry.name for entry in host_entries.scan(directory)]


def _directory_problem(config: ClassConfig, error: OSError | Hung) -> str:
    text = error.strerror if isinstance(error, OSError) else str(error)
    return f"the discovery directory {config.mount_dir} cannot be listed: {text}"
