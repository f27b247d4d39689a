"""Volumes made for claims: one is made, grows and goes; one is deleted by mistake and had again."""

from __future__ import annotations

import json
import sys
import time

from localvolume.host.process import commands
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.kinds import CLAIMS, STORAGE_CAPACITIES, STORAGE_CLASSES
from localvolume.kube.objects import CSIStorageCapacity, PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.objects import path_of
from localvolume_lab.demo.cluster import Names, create_claim, made_class
from localvolume_lab.demo.data import (
    contents,
    is_there,
    write_file,
    write_text,
    written,
)
from localvolume_lab.demo.deeds import capacity, milliseconds, took
from localvolume_lab.demo.machine import Machine
from localvolume_lab.demo.narrator import Narrator
from localvolume_lab.demo.product import Product
from localvolume_lab.demo.witness import PATIENCE_SECONDS, NotSeen, Witness

_SIZE, _LARGER = "16Mi", "32Mi"
_UNDO = "1h"


class MadeVolumes:
    """Two scenes, in this order. They raise NotSeen or ApiError where something does not come.

    `controller` None: it is not started, as in a cluster of the user's, where it would see to much
    more than the demo; claims are then routed by the demo. `config` is the agent's configuration.
    """

    def __init__(
        self,
        narrator: Narrator,
        machine: Machine,
        client: Client,
        names: Names,
        witness: Witness,
        controller: Product | None,
        *,
        config: str,
        kubeconfig: str,
    ) -> None:
        self._narrator = narrator
        self._machine = machine
        self._client = client
        self._names = names
        self._witness = witness
        self._controller = controller
        self._config = config
        self._kubeconfig = kubeconfig
        self.bound: list[float] = []
        """For each claim, the seconds until it had its volume."""

    # --- made, grown, gone ---------------------------------------------------------------------

    async def made_and_gone(self) -> None:
        narrator = self._narrator
        narrator.scene("No disk is prepared: the volume is made for the claim")
        await self._prepare()
        volume = await self._claim("scratch", self._names.made)
        narrator.command(write_file(path_of(volume)))
        await self._grow("scratch", volume)
        await narrator.rest()
        began = await self._delete("scratch")
        await self._witness.until(
            lambda: self._witness.gone(volume) or None, f"{volume.metadata.name} to be removed"
        )
        seconds = self._witness.when(volume, "gone") - began
        if is_there(path_of(volume)):
            raise NotSeen(f"{path_of(volume)} was to be removed and is still there")
        narrator.seen(
            f"{_short(volume)} is gone {milliseconds(seconds)} after its claim was deleted, "
            "and its directory too"
        )
        await narrator.rest()

    async def _prepare(self) -> None:
        """A pool, two classes, the controller; all of it ready for claims."""
        narrator, names = self._narrator, self._names
        narrator.say("The agent gets a pool, a directory to make volumes in, while it runs:")
        text = self.pools()
        began = time.monotonic()
        write_text(f"{self._config}/pools", text)
        narrator.quote(text)
        narrator.say(
            "(enforce: none, so that it is shown on every kernel: sizes are promised here, and not "
            "enforced. Project quotas, btrfs and images enforce them.)"
        )
        for body in (made_class(names), made_class(names, _UNDO)):
            await self._client.create(STORAGE_CLASSES, body)
        narrator.say(
            f"StorageClass {names.made} with the provisioner {marks.DYNAMIC_PROVISIONER}, and "
            f"{names.kept}, the same with undoPeriod: {_UNDO}"
        )
        if self._controller is not None:
            narrator.command("localvolume controller")
            self._controller.start(
                ["--lease-namespace", names.namespace], {"KUBECONFIG": self._kubeconfig}
            )
        else:
            narrator.say(
                "(The controller would see to all of this cluster and is not started: the demo "
                "labels its claims for their node, as the controller does.)"
            )
        await self.has_room(names.made, began)
        if self._controller is not None:
            await self._controller.wait_ready(PATIENCE_SECONDS, "leading")
            narrator.seen("the controller leads: it routes claims to where there is room")
        await narrator.rest()

    async def has_room(self, storage_class: str, began: float) -> None:
        """Wait until the agent says how much; its pool was configured at that time."""
        look = lambda: self._room(storage_class)  # noqa: E731
        room = await self._witness.until_found(look, f"room for class {storage_class}")
        self._narrator.seen(
            f"CSIStorageCapacity: {room.maximum_volume_size} of room for class {storage_class} on "
            f"{self._names.node}, {took(began)} after the pool was configured"
        )

    async def _room(self, storage_class: str) -> CSIStorageCapacity | None:
        found = await self._client.list_page(STORAGE_CAPACITIES, self._names.namespace, limit=0)
        return next((one for one in found.items if one.storage_class_name == storage_class), None)

    async def _claim(self, name: str, storage_class: str) -> PersistentVolume:
        """Create it; its volume once it is bound."""
        names, narrator, witness = self._names, self._narrator, self._witness
        labels = {} if self._controller else {marks.NODE_LABEL: marks.node_key(names.node)}
        narrator.command(
            f"kubectl create -f claim-{name}.yaml    # {_SIZE} of class {storage_class}"
        )
        began = time.monotonic()
        await create_claim(
            self._client, names, name, _SIZE, storage_class=storage_class, labels=labels
        )
        volume = await witness.until(lambda: witness.bound_to(name), f"claim {name} to be bound")
        seconds = time.monotonic() - began
        self.bound.append(seconds)
        if not is_there(path_of(volume)):
            raise NotSeen(f"{path_of(volume)} was to be made and is not there")
        narrator.seen(
            f"claim {name} is Bound to {_short(volume)} of {capacity(volume)}, "
            f"{milliseconds(seconds)} after it was created"
        )
        return volume

    async def _grow(self, name: str, volume: PersistentVolume) -> None:
        spec = {"spec": {"resources": {"requests": {"storage": _LARGER}}}}
        self._narrator.command(f"kubectl patch pvc {name} -p '{json.dumps(spec)}'")
        began = time.monotonic()
        await self._client.patch(CLAIMS, name, MergePatch(spec), self._names.namespace)

        def grown() -> bool | None:
            claim, now = self._witness.claim(name), self._witness.volume_at(path_of(volume))
            told = claim is not None and claim.status.capacity.get("storage") == _LARGER
            return True if told and now is not None and capacity(now) == _LARGER else None

        await self._witness.until(grown, f"claim {name} to have {_LARGER}")
        self._narrator.seen(
            f"claim and PersistentVolume say {_LARGER} {took(began)} later; nothing was restarted"
        )

    async def _delete(self, name: str) -> float:
        """Delete the claim; when that was asked for (time.monotonic)."""
        claim = await self._client.get(CLAIMS, name, self._names.namespace)
        self._narrator.command(f"kubectl delete pvc {name}")
        began = time.monotonic()
        await self._client.delete(CLAIMS, name, self._names.namespace, uid=claim.metadata.uid)
        return began

    # --- deleted by mistake --------------------------------------------------------------------

    async def undone(self) -> None:
        narrator = self._narrator
        narrator.scene("A claim is deleted by mistake, and its data is had again")
        volume = await self._claim("diary", self._names.kept)
        narrator.command(write_file(path_of(volume)))
        await self._delete("diary")
        await self._phase(volume, "Released")
        narrator.seen(
            f"{_short(volume)} is Released and kept for {_UNDO}: {_listed(volume)} is in it"
        )
        narrator.command(f"localvolume undo {volume.metadata.name}")
        narrator.seen(await self._undo(volume))
        await self._phase(volume, "Available")
        again = await self._claim("diary", self._names.kept)
        if again.metadata.uid != volume.metadata.uid:
            raise NotSeen(f"claim diary got {again.metadata.name}, not what it had before")
        if not written(path_of(again)):
            raise NotSeen(f"{path_of(again)} has not what was written")
        narrator.seen(f"it is the same volume, with {_listed(again)} as it was written")
        await narrator.rest()

    async def _phase(self, volume: PersistentVolume, phase: str) -> None:
        def there() -> PersistentVolume | None:
            now = self._witness.volume_at(path_of(volume), phase=phase)
            return now if now and now.metadata.uid == volume.metadata.uid else None

        await self._witness.until(there, f"{volume.metadata.name} to be {phase}")

    async def _undo(self, volume: PersistentVolume) -> str:
        argv = [sys.executable, "-m", "localvolume", "undo", volume.metadata.name]
        try:
            done = await commands.run(
                [*argv, "--kubeconfig", self._kubeconfig], timeout=PATIENCE_SECONDS
            )
        except (commands.CommandTimedOut, commands.CommandMissing) as error:
            raise NotSeen(str(error)) from error
        if done.returncode != 0:
            raise NotSeen(f"localvolume undo: {done.stderr.strip() or done.returncode}")
        return done.stdout.strip().replace(volume.metadata.name, _short(volume))

    def pools(self) -> str:
        """The agent's configuration of the pool."""
        classes = json.dumps([self._names.made, self._names.kept])
        lines = ["fast:", f"  hostDir: {json.dumps(self._machine.pool)}"]
        return "\n".join([*lines, f"  classes: {classes}", "  enforce: none"]) + "\n"


def _short(volume: PersistentVolume) -> str:
    """Enough of a name like pvc-5e3c9f0a-..., which nobody reads to its end."""
    return f"{volume.metadata.name[:12]}..."


def _listed(volume: PersistentVolume) -> str:
    return ", ".join(contents(path_of(volume))) or "nothing"
