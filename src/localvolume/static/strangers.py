"""Whether anybody's PersistentVolume may mean what is about to be erased or offered."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from localvolume.host.process.workers import Workers
from localvolume.host.tree.entries import device_number
from localvolume.kube.client import Client
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume
from localvolume.static.model import Entry
from localvolume.static.plan.world import plain
from localvolume.volumes import affinity, marks
from localvolume.volumes.identity import from_annotation, is_within, may_share_data
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.objects import is_on_node

BURST_SECONDS = 5.0
"""How old a list may be when a volume is offered: one list serves a burst of offers."""

_DEVICES_SECONDS = 5.0


class NameUnreadable(Exception):
    """A PersistentVolume names a device that cannot be looked at: it may be any."""


@dataclass(frozen=True, slots=True)
class Named:
    """The paths on this node's host that PersistentVolumes name, each with its object's name.

    `anywhere` are the paths of objects that may mean any node, `ours` those of objects with this
    node's label. `devices` are the paths that lead to block devices, by "major:minor"; `unreadable`
    those for which nobody can tell, with the reason. `records` are the identity annotations of all
    objects without this node's label, by name, wherever their volumes are.
    """

    paths: Mapping[str, str] = field(default_factory=dict)
    anywhere: Collection[str] = ()
    ours: Collection[str] = ()
    devices: Mapping[str, str] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    records: Mapping[str, str] = field(default_factory=dict)

    def stranger(self, entry: Entry, own: Collection[str] = ()) -> tuple[str, str] | None:
        """An object, and the path in it, that may mean what is at the entry; or None.

        It is found by the entry's path, a directory within or around it, or the same device. `own`
        are names of objects that may mean it. Raises NameUnreadable.
        """
        for path, name in self.paths.items():
            if name not in own and overlaps(path, entry.host_path):
                return name, path
        if entry.kind != "block":
            return None
        for path, reason in self.unreadable.items():
            raise NameUnreadable(
                f"a PersistentVolume names {path}, which cannot be looked at: {reason}"
            )
        path = self.devices.get(entry.device, "")
        return (self.paths[path], path) if path and self.paths[path] not in own else None

    def why_not_offered(self, entry: Entry, own: Collection[str]) -> str | None:
        """Why what is at the entry may be somebody's already, or None.

        `own` are the names that its own object may have, which is adopted. The plan deals with
        objects that have our label. A directory around the entry counts only if its object means
        this node: otherwise it would keep every volume of every node from being offered.
        """
        here = {
            path: name
            for path, name in self.paths.items()
            if path not in self.ours
            and (path not in self.anywhere or is_within(path, entry.host_path))
        }
        devices = {number: path for number, path in self.devices.items() if path in here}
        try:
            found = Named(here, devices=devices, unreadable=self.unreadable).stranger(entry, own)
        except NameUnreadable as error:
            return str(error)
        return found and f"the PersistentVolume {found[0]} names {found[1]}: it may be somebody's"

    def same_disk(self, entry: Entry) -> str | None:
        """Why an object of another node may have the entry's disk, or None.

        A record that cannot be read may be of any disk.
        """
        for name, text in self.records.items():
            try:
                identity = from_annotation(text)
            except ValueError as error:
                return f"the PersistentVolume {name} may have this disk: {error}"
            if identity and may_share_data(identity, entry.identity):
                return f"the PersistentVolume {name} of another node has this disk"
        return None


class Strangers:
    """Asks the API server what is named; a list that is not too old serves further callers."""

    def __init__(self, client: Client, workers: Workers) -> None:
        self._client = client
        self._workers = workers
        self._asking = asyncio.Lock()
        self._found: tuple[float, Named] | None = None

    async def named(self, node: NodeFacts, oldest_seconds: float = 0.0) -> Named:
        """What PersistentVolumes name on this node, by a list no older than `oldest_seconds`.

        Raises the errors of kube.errors, and Hung.
        """
        asked = time.monotonic()
        async with self._asking:
            if self._found is None or self._found[0] < asked - oldest_seconds:
                self._found = time.monotonic(), await self._list(node)
            return self._found[1]

    async def _list(self, node: NodeFacts) -> Named:
        paths: dict[str, str] = {}
        anywhere: set[str] = set()
        ours: set[str] = set()
        records: dict[str, str] = {}
        cont, more = "", True
        while more:
            page = await self._client.list_page(PERSISTENT_VOLUMES, cont=cont)
            for one in page.items:
                path = path_here(one, node)
                paths[path] = one.metadata.name
                if not affinity.required_terms(one):
                    anywhere.add(path)
                if one.metadata.labels.get(marks.NODE_LABEL) == marks.node_key(node.name):
                    ours.add(path)
                elif text := one.metadata.annotations.get(marks.IDENTITY_ANNOTATION):
                    records[one.metadata.name] = text
            cont, more = page.cont, bool(page.cont)
        paths.pop("", None)
        below_dev = [path for path in paths if is_within(path, "/dev")]
        devices, unreadable = await self._workers.call(
            "devices of volumes", _DEVICES_SECONDS, _devices_of, below_dev
        )
        return Named(paths, anywhere, ours, devices, unreadable, records)


def _devices_of(paths: Collection[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Which block devices the paths lead to, and why nobody can tell for others."""
    devices, unreadable = {}, {}
    for path in paths:
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            unreadable[path] = error.strerror or str(error)
        else:
            if stat.S_ISBLK(found.st_mode):
                devices[device_number(found.st_rdev)] = path
    return devices, unreadable


def path_here(volume: PersistentVolume, node: NodeFacts) -> str:
    """The path that the object names on this node's host; "" if it certainly names none here.

    Without an affinity (hostPath), or with one that cannot be read, it may mean any node.
    """
    source = volume.spec.local or volume.spec.host_path
    if source is None:
        return ""
    terms = affinity.required_terms(volume)
    elsewhere = (
        terms
        and not is_on_node(volume, node.hostname)
        and not any(affinity.matches(term, node.name, node.labels) for term in terms)
    )
    return "" if elsewhere else plain(source.path)


def overlaps(path: str, other: str) -> bool:
    """Whether one of two directories is, or lies in, the other."""
    return is_within(path, other) or is_within(other, path)
