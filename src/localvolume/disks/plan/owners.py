"""Who owns a disk, even if neither its content nor an entry says so. Pure.

A tenant that has a whole disk as a raw volume may write a partition table onto it, and the kernel
then shows blank partitions. Also, an entry may be gone while its PersistentVolume is still bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from localvolume.disks.model import Disk
from localvolume.disks.plan.naming import entry_name, tells
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes.identity import Identity
from localvolume.volumes.objects import recorded_identity

_DECIDING: Final = ("wwn", "serial", "loopFile")
_FURTHER: Final = ("model", "partUuid", "loopInode", "loopOffset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """What says who owns a disk. `entries` and `devices` are entries of discovery directories and
    the PersistentVolumes that lead to a device, by its number; `paths` and `recorded` the path and
    the recorded identity of each PersistentVolume, by its name.
    """

    entries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, Identity] = field(default_factory=dict)

    def of(self, disk: Disk, parent: str, host_dir: str) -> str:
        """Who owns the disk, in words, or "". `parent` is the number of the disk that it is a
        partition of, or ""; `host_dir` is the directory of the class it would be for: an object
        that names the disk's own place there is the disk's own.
        """
        if parent and (entries := self.entries.get(parent)):
            return f"{', '.join(entries)} leads to its disk {disk.parent}"
        if parent and (name := self.devices.get(parent)):
            return f"PersistentVolume {name} names its disk {disk.parent}"
        if name := self.devices.get(disk.device):
            return f"PersistentVolume {name} names it"
        own = re.compile(re.escape(f"{host_dir}/{entry_name(disk)}") + r"(-[0-9a-f]{8})?")
        for name, identity in sorted(self.recorded.items()):
            if not own.fullmatch(self.paths.get(name, "")) and is_of(identity, disk.identity):
                return f"PersistentVolume {name} was published of it, as its identity has it"
        return ""


def identities(volumes: Iterable[PersistentVolume]) -> dict[str, Identity]:
    """The identities recorded on these objects, by name, without missing or unreadable ones."""
    found: dict[str, Identity] = {}
    for volume in volumes:
        with suppress(ValueError):
            if (identity := recorded_identity(volume)) is not None:
                found[volume.metadata.name] = identity
    return found


def is_of(recorded: Identity, disk: Mapping[str, str]) -> bool:
    """Whether a volume's recorded identity is of that disk: of all of it, or of a part."""
    known = [key for key in _DECIDING if tells(disk.get(key, "")) and _said(recorded, key)]
    compared = [*known, *(key for key in _FURTHER if key in disk and _said(recorded, key))]
    return bool(known) and all(disk[key] == _said(recorded, key) for key in compared)


def _said(recorded: Identity, key: str) -> str:
    """The value recorded for a key; a filesystem's record has it under, say, "deviceWwn"."""
    return recorded.get(key) or recorded.get(f"device{key[0].upper()}{key[1:]}", "")
