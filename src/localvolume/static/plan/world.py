"""The facts of one plan with their indexes, and the questions that the rules ask of them."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

from localvolume.kube.objects import PersistentVolume
from localvolume.static.model import ClassFacts, Entry, Facts
from localvolume.volumes import marks
from localvolume.volumes.capacity import bytes_of, published_bytes
from localvolume.volumes.identity import (
    Comparison,
    Identity,
    anchors,
    compare,
    may_share_data,
    tells_apart,
    unchanged,
)
from localvolume.volumes.names import longer_volume_name, volume_name
from localvolume.volumes.objects import (
    claims_of,
    ever_claimed,
    generation_of,
    is_on_node,
    path_of,
    phase_of,
    recorded_identity,
)
from localvolume.volumes.record import strange

T = TypeVar("T")


class Sharing(Generic[T]):
    """Things by an anchor (a device, a UUID) and the directory in it that each one has.

    A thousand bind mounts of one disk are common: the cost of a look-up depends on the depth of a
    path and on what it finds, never on the number of things.
    """

    def __init__(self) -> None:
        self._at: dict[tuple[str, str], list[T]] = defaultdict(list)
        self._beneath: dict[tuple[str, str], list[T]] = defaultdict(list)

    def add(self, anchor: str, directory: str, thing: T) -> None:
        self._at[anchor, directory].append(thing)
        for parent in _parents(directory):
            self._beneath[anchor, parent].append(thing)

    def find(self, anchor: str, directory: str) -> Iterator[T]:
        """The things that have that directory, one within it or one around it, in any order."""
        yield from self._at.get((anchor, directory), ())
        yield from self._beneath.get((anchor, directory), ())
        for parent in _parents(directory):
            yield from self._at.get((anchor, parent), ())


@lru_cache(maxsize=4096)
def _parents(directory: str) -> tuple[str, ...]:
    if directory in ("/", ""):
        return ()
    parent = posixpath.dirname(directory)
    return (parent, *_parents(parent))


if TYPE_CHECKING:
    from localvolume.cleaning.jobs import CleaningJob

THE_SAME = f"if you know that it is, remove the annotation {marks.IDENTITY_ANNOTATION}"
"""What an administrator does to confirm that it is the same volume."""

ITS_OWN = (
    f"if you know that it is this object's, remove the annotation {marks.GENERATION_ANNOTATION}"
    " and let `localvolume forget` remove the record"
)
"""The same if the volume's record speaks against the object."""


class World:
    """One moment's facts: built for a plan, asked by its rules, thrown away with it."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._names: dict[tuple[str, str], tuple[str, str]] = {}
        self._reserved: dict[str, Entry] = {}
        self._entries = {(entry.class_name, entry.host_path): entry for entry in facts.entries}
        self._by_path: dict[str, list[PersistentVolume]] = defaultdict(list)
        self._records: dict[str, Identity] = {}
        for volume in facts.volumes.values():
            # "/mnt//a/" is "/mnt/a" to kubelet, so it is here too.
            self._by_path[plain(path_of(volume))].append(volume)

    @cached_property
    def _neighbours(self) -> Sharing[Entry]:
        """The entries by their device and the part of it that they have."""
        found: Sharing[Entry] = Sharing()
        for entry in self.facts.entries:
            if entry.device and not entry.excluded:
                found.add(entry.device, _part_of(entry), entry)
        return found

    @cached_property
    def _on_record(self) -> Sharing[PersistentVolume]:
        """The PersistentVolumes by their recorded identities."""
        found: Sharing[PersistentVolume] = Sharing()
        for volume in self.facts.volumes.values():
            identity = self._record(volume)
            for anchor in anchors(identity):
                found.add(anchor, identity.get("root", "/"), volume)
        return found

    def _record(self, volume: PersistentVolume) -> Identity:
        """The recorded identity, for finding others; empty if it is missing or unreadable."""
        name = volume.metadata.name
        if name not in self._records:
            try:
                self._records[name] = recorded_identity(volume) or {}
            except ValueError:
                self._records[name] = {}
        return self._records[name]

    def offers_of(self, host_path: str) -> list[PersistentVolume]:
        """The PersistentVolumes that name this path, however they write it."""
        return self._by_path.get(host_path, [])

    def names_of(self, entry: Entry) -> tuple[str, str]:
        """The names that the entry's own PersistentVolume may have; several rules ask for them."""
        key = entry.class_name, entry.name
        if key not in self._names:
            self._names[key] = names_of(entry, self.facts.node.name)
        return self._names[key]

    def reserve(self, name: str, entry: Entry) -> bool:
        """Keep a name for an entry of this plan; False if another entry has it already."""
        return self._reserved.setdefault(name, entry) is entry

    def class_of(self, volume: PersistentVolume) -> ClassFacts | None:
        return self.facts.classes.get(volume.spec.storage_class_name)

    def entry_of(self, volume: PersistentVolume) -> Entry | None:
        return self._entries.get((volume.spec.storage_class_name, path_of(volume)))

    def misplaced(self, volume: PersistentVolume) -> str | None:
        """Why this object may not speak for a volume of this node, or None if it may.

        An annotation or a label can be forged or mistyped; a path that is not one name directly
        in the class's own directory would let it empty what it should never reach.
        """
        class_facts = self.class_of(volume)
        if volume.spec.local is None:
            return "it is not a local volume"
        if class_facts is None:
            return f"its class {volume.spec.storage_class_name!r} is not in the configuration"
        host_dir, path = class_facts.config.host_dir, path_of(volume)
        name = posixpath.basename(path)
        if path != f"{host_dir}/{name}" or name in ("", ".", ".."):
            return f"its path {path!r} is not an entry of the class's directory {host_dir!r}"
        if not is_on_node(volume, self.facts.node.hostname):
            return f"its node affinity does not name this node ({self.facts.node.hostname!r})"
        return None

    def vanished(self, volume: PersistentVolume) -> str | None:
        """Why the volume is provably not there now, or None if it is or nobody can tell."""
        class_facts, entry = self.class_of(volume), self.entry_of(volume)
        if class_facts is None or class_facts.problem:
            return None
        if entry is None:
            reason = f"{path_of(volume)} does not exist"
        elif entry.problem and entry.problem.is_absence:
            reason = entry.problem.text
        else:
            return None
        return None if self.misplaced(volume) else reason

    def unreadable(self, volume: PersistentVolume) -> str | None:
        """Why nothing can be said of the volume now, or None."""
        class_facts, entry = self.class_of(volume), self.entry_of(volume)
        if class_facts and class_facts.problem:
            return class_facts.problem
        if entry and entry.problem and not entry.problem.is_absence:
            return entry.problem.text
        return None

    def identity(self, volume: PersistentVolume, entry: Entry) -> Comparison:
        """Whether the entry is still what the PersistentVolume was made for.

        An object that an older provisioner made records no identity; its size and mode must fit.
        """
        try:
            recorded = recorded_identity(volume)
        except ValueError as error:
            return Comparison("unknown", str(error))
        if recorded is not None and tells_apart(recorded):
            return compare(recorded, entry.identity)
        # When it was published, nothing better could be read: mode, size and all else must fit.
        if volume.spec.volume_mode == "Block" and entry.kind != "block":
            return Comparison("differs", "it was published as a block device and is a filesystem")
        if differs := self.size_differs(volume, entry):
            return Comparison("differs", f"it has no recorded identity, and {differs}")
        return Comparison("same", "") if recorded is None else unchanged(recorded, entry.identity)

    def size_differs(self, volume: PersistentVolume, entry: Entry) -> str | None:
        promised = bytes_of(volume.spec.capacity.get("storage", ""))
        there = published_bytes(entry.size_bytes)
        if promised == there:
            return None
        return f"it was published with {promised} bytes and now has {there}"

    def obstacle(self, volume: PersistentVolume) -> str | None:
        """Why nothing destructive may be done for this PersistentVolume now, or None.

        Everything that must be true before data is removed is checked here, and no other place
        checks less. Destructive acts ask the disk again at the moment they act.
        """
        if reason := self.misplaced(volume) or self.vanished(volume) or self.unreadable(volume):
            return reason
        entry = self.entry_of(volume)
        if entry is None:
            return f"{path_of(volume)} is not known yet"
        if volume.spec.volume_mode == "Block" and entry.kind != "block":
            return "it was published as a block device and is a filesystem now"
        if unseen := self.pods_unseen(entry):
            return unseen
        comparison = self.identity(volume, entry)
        if comparison.verdict == "renumbered":
            text = f"this may not be the volume that was published: {comparison.reason}"
            return f"{text}; {THE_SAME}"
        if comparison.verdict != "same":
            return f"this is not the volume that was published: {comparison.reason}"
        if shrunk := self._shrunk(volume, entry):
            return shrunk
        for other in self.other_offers(volume):
            return (
                f"{other.metadata.name} ({path_of(other)}) offers the same data under another path"
            )
        if strange := self.strange(volume, entry):
            return f"this may be somebody else's volume now: {strange}; {ITS_OWN}"
        return None

    def strange(self, volume: PersistentVolume, entry: Entry) -> str | None:
        """Why, by its record, the volume is not this object's, or None."""
        return strange(generation_of(volume), claims_of(volume), entry.recorded)

    def _shrunk(self, volume: PersistentVolume, entry: Entry) -> str | None:
        """Why a cleaning would not reach all of a device, or None.

        Data beyond its present end may come back if the device grows again. For a filesystem, all
        files are within reach.
        """
        promised = bytes_of(volume.spec.capacity.get("storage", ""))
        there = published_bytes(entry.size_bytes)
        if entry.kind != "block" or promised is None or there >= promised:
            return None
        return f"the device is smaller than it was: {self.size_differs(volume, entry)}"

    def pods_unseen(self, entry: Entry) -> str | None:
        """Why nobody can tell whether a pod still has the entry mounted; None if that is seen.

        A device itself shows that it is in use.
        """
        return self.facts.pods_unseen if entry.kind == "filesystem" else None

    def other_offers(self, volume: PersistentVolume) -> list[PersistentVolume]:
        """The other PersistentVolumes whose volume is this one's, or part of it, or around it.

        They are found by path, by what is seen of the disks now, and by their recorded identities:
        a disk whose path cannot be read at the moment is still the one it was.
        """
        record = self._record(volume)
        found = [*self.offers_of(plain(path_of(volume))), *self._sharing(record)]
        entry = self.entry_of(volume)
        if entry is not None and entry.device:
            if entry.identity != record:
                found += self._sharing(entry.identity)
            for neighbour in self._neighbours.find(entry.device, _part_of(entry)):
                found += self.offers_of(neighbour.host_path)
        others = {one.metadata.name: one for one in found if one is not volume}
        return [others[name] for name in sorted(others)]

    def _sharing(self, identity: Identity) -> Iterator[PersistentVolume]:
        for anchor in anchors(identity):
            for volume in self._on_record.find(anchor, identity.get("root", "/")):
                if may_share_data(self._record(volume), identity):
                    yield volume

    def own_job(self, volume: PersistentVolume) -> CleaningJob | None:
        """The Job that we made for this very object, whatever has become of it."""
        uid = volume.metadata.uid
        return next((job for job in self.facts.jobs if job.ours and job.volume_uid == uid), None)

    def other_job(self, volume: PersistentVolume) -> CleaningJob | None:
        """A Job at work on the volume that we did not make for this very object.

        A Job for the same volume name is another object's or an older provisioner's. Who made it
        does not matter while it destroys data.
        """
        if not self._at_work:
            return None  # This is nearly always so, and asked for every volume.
        paths = {path_of(volume)}
        entry = self.entry_of(volume)
        if entry is not None:
            paths |= self._paths_of(entry)
        name, uid = volume.metadata.name, volume.metadata.uid
        for job in self._at_work:
            if job.ours and job.volume_uid == uid:
                continue
            if job.path in paths or job.volume_name == name:
                return job
        return None

    def job_on(self, entry: Entry) -> CleaningJob | None:
        """A Job at work on an entry that no PersistentVolume offers."""
        paths = self._paths_of(entry) if self._at_work else set()
        return next((job for job in self._at_work if job.path in paths), None)

    @cached_property
    def _at_work(self) -> list[CleaningJob]:
        return [job for job in self.facts.jobs if job.state == "unfinished"]

    def _paths_of(self, entry: Entry) -> set[str]:
        """Where the entry's data can be reached, as agents see it and as the host calls it."""
        paths = {entry.path, entry.host_path}
        if entry.device:
            for neighbour in self._neighbours.find(entry.device, _part_of(entry)):
                paths |= {neighbour.path, neighbour.host_path}
        return paths

    def yields_to(self, volume: PersistentVolume) -> PersistentVolume | None:
        """The offer of the same data that takes precedence over this one, if there is one.

        What a claim holds or held comes first, then the lower name: both sides judge alike.
        """
        best = min(self.other_offers(volume), key=_precedence, default=volume)
        return None if _precedence(volume) <= _precedence(best) else best

    def offered_elsewhere(self, entry: Entry) -> str | None:
        """Where the data of an entry without a PersistentVolume is or will be offered instead."""
        for volume in self._sharing(entry.identity):
            return f"{volume.metadata.name} offers its data as {path_of(volume)}"
        if not entry.device:
            return None
        own = (entry.class_name, entry.path)
        rivals = [
            neighbour
            for neighbour in self._neighbours.find(entry.device, _part_of(entry))
            if neighbour is not entry
            and (self.offers_of(neighbour.host_path) or self._comes_first(neighbour, own))
        ]
        if not rivals:
            return None
        rival = min(rivals, key=lambda one: (one.class_name, one.path))
        return f"it shares its data with {rival.host_path} (class {rival.class_name})"

    def _comes_first(self, neighbour: Entry, own: tuple[str, str]) -> bool:
        if neighbour.path != own[1] and neighbour.host_path in self.facts.busy:
            return True  # It may be published, or cleaned, at this very moment.
        may_be_offered = neighbour.problem is None and self.unfit(neighbour) is None
        return may_be_offered and (neighbour.class_name, neighbour.path) < own

    def unfit(self, entry: Entry) -> tuple[str, str] | None:
        """Why the entry's class cannot offer it, as a word and as a sentence, or None."""
        class_facts = self.facts.classes[entry.class_name]
        if not class_facts.exists:
            return "no-class", f"there is no StorageClass {entry.class_name!r}"
        if class_facts.reclaim_policy not in ("Delete", "Retain"):
            policy = class_facts.reclaim_policy
            return "policy", f"the StorageClass has reclaim policy {policy}: not supported"
        if class_facts.config.volume_mode == "Block" and entry.kind != "block":
            return "wrong-kind", "it is a directory, and its class offers block devices"
        return None


def names_of(entry: Entry, node_name: str) -> tuple[str, str]:
    """The names that the entry's own PersistentVolume may have: upstream's, and the longer one."""
    parts = (entry.name, node_name, entry.class_name)
    return volume_name(*parts), longer_volume_name(*parts)


def plain(path: str) -> str:
    """A path as kubelet cleans it (Go's filepath.Clean); POSIX would keep two leading slashes."""
    return "/" + posixpath.normpath(path).lstrip("/") if path else ""


def _precedence(volume: PersistentVolume) -> tuple[bool, bool, str]:
    return (phase_of(volume) != "Bound", not ever_claimed(volume), volume.metadata.name)


def _part_of(entry: Entry) -> str:
    """The part of its device that an entry has: a directory, or "/" for the device itself."""
    return entry.root if entry.kind == "filesystem" else "/"
