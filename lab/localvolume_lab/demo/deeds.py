"""What happens in several scenes: a claim binds, goes, its volume is cleaned and offered anew."""

from __future__ import annotations

import time

from localvolume.cleaning.receipt import human_size
from localvolume.kube.client import Client
from localvolume.kube.kinds import CLAIMS
from localvolume.kube.objects import EventObject, PersistentVolume
from localvolume.volumes.objects import path_of
from localvolume_lab.demo.cluster import Names, create_claim
from localvolume_lab.demo.data import Tenant, contents, find_on_device, unlike_zero
from localvolume_lab.demo.machine import Disk
from localvolume_lab.demo.narrator import Narrator
from localvolume_lab.demo.witness import NotSeen, Witness


class Deeds:
    """Each does something, waits for what must come of it, and says what was seen of it.

    They raise NotSeen where it does not come, ApiError where the API server refuses.
    `recovered` collects, for each cleaned volume, the seconds from its release (or from the mount
    that made its cleaning possible) until it was Available again.
    """

    def __init__(
        self, narrator: Narrator, client: Client, names: Names, witness: Witness, binder: str
    ) -> None:
        self._narrator = narrator
        self._client = client
        self._names = names
        self._witness = witness
        self._binder = binder
        self.recovered: list[float] = []

    async def claim(self, name: str, disk: Disk, size: str) -> None:
        narrator, witness = self._narrator, self._witness
        began = time.monotonic()
        cls = self._names.raw if disk.block else self._names.files
        await create_claim(
            self._client, self._names, name, size, storage_class=cls, block=disk.block
        )
        volume = await witness.until(lambda: witness.bound_to(name), f"claim {name} to be bound")
        narrator.seen(
            f"claim {name} ({size}) is bound to {volume.metadata.name} by {self._binder} "
            f"after {took(began)}"
        )
        if path_of(volume) != disk.path:
            raise NotSeen(f"claim {name} got {path_of(volume)}, not {disk.path}")
        narrator.command(Tenant(disk).write())
        if disk.block:
            found = find_on_device(disk.path)
            if not found:
                raise NotSeen(f"what was written to {disk.path} is not there")
            narrator.seen(f"{disk.path} has the tenant's words at byte {found[0]:,}")

    async def release(self, name: str, disk: Disk) -> PersistentVolume:
        """Delete the claim; returns its volume as it was while bound."""
        narrator, witness = self._narrator, self._witness
        volume = witness.volume_at(disk.path)
        if volume is None:
            raise NotSeen(f"the PersistentVolume of {disk.path} is gone")
        claim = await self._client.get(CLAIMS, name, self._names.namespace)
        narrator.command(f"kubectl delete pvc {name}")
        await self._client.delete(CLAIMS, name, self._names.namespace, uid=claim.metadata.uid)
        return volume

    async def cleaned_and_back(self, old: PersistentVolume, remounted: float | None = None) -> None:
        """The cleaning's receipt, the old object's end, the new object."""
        narrator, witness = self._narrator, self._witness
        cleaned = await self.event(old, "VolumeCleaned")
        narrator.event(cleaned.type, cleaned.reason, cleaned.message)
        new = await witness.until(
            lambda: witness.successor(old), f"a new PersistentVolume for {path_of(old)}"
        )
        since = remounted or witness.when(old, "Released")
        seconds = witness.when(new, "Available") - since
        self.recovered.append(seconds)
        narrator.seen(
            f"{new.metadata.name} is a new object (UID {old.metadata.uid[:8]} is now "
            f"{new.metadata.uid[:8]}), Available {seconds:.2f} s after "
            f"{'the mount' if remounted else 'its release'}"
        )

    async def event(self, volume: PersistentVolume, reason: str) -> EventObject:
        name = volume.metadata.name
        look = lambda: self._witness.event(volume, reason)  # noqa: E731
        return await self._witness.until(look, f"the Event {reason} about {name}")

    def nothing_left(self, disk: Disk) -> None:
        """Look for ourselves, whatever the receipt says."""
        if disk.block:
            size, other = unlike_zero(disk.path)
            if other is not None:
                raise NotSeen(f"{disk.path} was to be zero and is not at byte {other}")
            self._narrator.seen(f"{disk.path}: read back in full, {human_size(size)} of zeros")
            return
        found = contents(disk.path)
        if found not in ([], ["lost+found"]):
            raise NotSeen(f"{disk.path} was to be empty and has {found}")
        self._narrator.seen(f"{disk.path}: {', '.join(found) or 'nothing'} in it")


def capacity(volume: PersistentVolume) -> str:
    return volume.spec.capacity.get("storage", "?")


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def took(began: float) -> str:
    seconds = time.monotonic() - began
    return f"{seconds:.1f} s" if seconds >= 1 else milliseconds(seconds)
