"""The facts of one plan with their indexes, and the questions that the rules ask of them."""

from __future__ import annotations

import posixpath
from collections import defaultdict

from localvolume.kube.objects import PersistentVolume
from localvolume.static.model import ClassFacts, Entry, Facts
from localvolume.volumes.capacity import bytes_of, published_bytes
from localvolume.volumes.identity import Comparison, compare, tells_apart
from localvolume.volumes.objects import (
    ever_claimed,
    is_on_node,
    path_of,
    phase_of,
    recorded_identity,
)


class World:
    """One moment's facts: built for a plan, asked by its rules, thrown away with it."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.volumes_by_path: dict[str, list[PersistentVolume]] = defaultdict(list)
        for volume in facts.volumes.values():
            self.volumes_by_path[path_of(volume)].append(volume)
        self._entries = {(entry.class_name, entry.host_path): entry for entry in facts.entries}
        self._reserved: dict[str, Entry] = {}
        self._by_device: dict[str, list[Entry]] = defaultdict(list)
        seen: set[str] = set()
        for entry in facts.entries:
            # Two classes may share a directory: one path is still one claimant.
            if entry.device and not entry.excluded and entry.host_path not in seen:
                seen.add(entry.host_path)
                self._by_device[entry.device].append(entry)

    def reserve(self, name: str, entry: Entry) -> bool:
        """Keep a name for an entry of this plan; False where another entry has it already."""
        return self._reserved.setdefault(name, entry) is entry

    def class_of(self, volume: PersistentVolume) -> ClassFacts | None:
        return self.facts.classes.get(volume.spec.storage_class_name)

    def entry_of(self, volume: PersistentVolume) -> Entry | None:
        return self._entries.get((volume.spec.storage_class_name, path_of(volume)))

    def misplaced(self, volume: PersistentVolume) -> str | None:
        """Why this object may not speak for a volume of this node, or None where it may.

        An annotation or a label can be forged or mistyped; a path that is not one name directly
        in the class's own directory would let it empty what it should never reach.
        """
        class_facts = self.class_of(volume)
        if volume.spec.local is None:
            return "it is not a local volume"
        if class_facts is None:
            return f"its class {volume.spec.storage_class_name!r} is not in the configuration"
        host_dir, path = class_facts.config.host_dir, path_of(volume)
        parent, name = posixpath.split(path)
        if parent != host_dir or name in ("", ".", ".."):
            return f"its path {path!r} is not an entry of the class's directory {host_dir!r}"
        if not is_on_node(volume, self.facts.node.hostname):
            return f"its node affinity does not name this node ({self.facts.node.hostname!r})"
        return None

    def vanished(self, volume: PersistentVolume) -> str | None:
        """Why the volume is provably not there now, or None where it is or nobody can tell."""
        class_facts, entry = self.class_of(volume), self.entry_of(volume)
        if class_facts is None or class_facts.problem:
            return None
        if entry is None:
            return f"{path_of(volume)} does not exist"
        if entry.problem and entry.problem.code in ("gone", "wrong-kind"):
            return entry.problem.text
        return None

    def unreadable(self, volume: PersistentVolume) -> str | None:
        """Why nothing can be said of the volume now, or None."""
        class_facts, entry = self.class_of(volume), self.entry_of(volume)
        if class_facts and class_facts.problem:
            return class_facts.problem
        if entry and entry.problem and entry.problem.code not in ("gone", "wrong-kind"):
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
        if recorded is not None:
            comparison = compare(recorded, entry.identity)
            if comparison.verdict != "same" or tells_apart(recorded):
                return comparison
        # Nothing better is known of it: then at least mode and size must fit.
        if volume.spec.volume_mode == "Block" and entry.kind != "block":
            return Comparison("differs", "it was published as a block device and is a filesystem")
        if differs := self.size_differs(volume, entry):
            return Comparison(
                "differs", f"it has no serial number or UUID on record, and {differs}"
            )
        return Comparison("same", "")

    def size_differs(self, volume: PersistentVolume, entry: Entry) -> str | None:
        promised = bytes_of(volume.spec.capacity.get("storage", ""))
        there = published_bytes(entry.size_bytes)
        if promised == there:
            return None
        return f"it was published with {promised} bytes and now has {there}"

    def obstacle(self, volume: PersistentVolume) -> str | None:
        """Why nothing destructive may be done for this PersistentVolume now, or None.

        Everything that must be true before data is removed is asked here, and nowhere is less
        asked; what is destructive asks the disk again at the moment it acts.
        """
        if reason := self.misplaced(volume) or self.vanished(volume) or self.unreadable(volume):
            return reason
        entry = self.entry_of(volume)
        if entry is None:
            return f"{path_of(volume)} is not known yet"
        if volume.spec.volume_mode == "Block" and entry.kind != "block":
            return "it was published as a block device and is a filesystem now"
        comparison = self.identity(volume, entry)
        if comparison.verdict != "same":
            return f"this is not the volume that was published: {comparison.reason}"
        if other := self.other_offer(volume):
            return (
                f"{other.metadata.name} ({path_of(other)}) offers the same data under another path"
            )
        return None

    def other_offer(self, volume: PersistentVolume) -> PersistentVolume | None:
        """Another PersistentVolume whose volume is this one's, or part of it, or around it."""
        for other in self.volumes_by_path[path_of(volume)]:
            if other is not volume:
                return other
        entry = self.entry_of(volume)
        if entry is None or not entry.device:
            return None
        for neighbour in self._by_device[entry.device]:
            if neighbour.host_path != entry.host_path and _share_data(entry, neighbour):
                offers = self.volumes_by_path.get(neighbour.host_path)
                if offers:
                    return offers[0]
        return None

    def yields_to(self, volume: PersistentVolume) -> PersistentVolume | None:
        """The offer of the same data that takes precedence over this one, if there is one.

        What a claim holds or held comes first, then the lower name: both sides judge alike.
        """
        other = self.other_offer(volume)
        if other is None or _precedence(volume) < _precedence(other):
            return None
        return other

    def rival_of(self, entry: Entry) -> Entry | None:
        """The entry that is, or shares data with, this one and is to be offered in its place."""
        for neighbour in self._by_device[entry.device] if entry.device else ():
            if neighbour.host_path == entry.host_path or not _share_data(entry, neighbour):
                continue
            if neighbour.host_path in self.volumes_by_path:
                return neighbour
            usable = neighbour.problem is None
            if usable and (neighbour.class_name, neighbour.path) < (entry.class_name, entry.path):
                return neighbour
        return None


def _precedence(volume: PersistentVolume) -> tuple[bool, bool, str]:
    return (phase_of(volume) != "Bound", not ever_claimed(volume), volume.metadata.name)


def _share_data(one: Entry, other: Entry) -> bool:
    """Whether writing to one of two entries of one device can be seen in the other."""
    if one.kind != "filesystem" or other.kind != "filesystem":
        return True
    return is_within(one.root, other.root) or is_within(other.root, one.root)


def is_within(path: str, directory: str) -> bool:
    """Whether a path is that directory or lies in it; both absolute and normalised."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
