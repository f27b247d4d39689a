"""A volume of the CSI driver is snapshotted, has an accident, and is had again as it was."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from localvolume.config.provisioner import CSI_DRIVER
from localvolume.kube.client import Client
from localvolume.kube.kinds import CLAIMS, SNAPSHOT_CLASSES, SNAPSHOTS, STORAGE_CLASSES
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.snapshotobjects import VolumeSnapshot
from localvolume_lab.demo.cluster import Names, claim_manifest
from localvolume_lab.demo.data import contents, is_there, write_file, write_text, written
from localvolume_lab.demo.deeds import capacity, milliseconds, took
from localvolume_lab.demo.machine import Machine
from localvolume_lab.demo.madevolumes import MadeVolumes
from localvolume_lab.demo.narrator import Narrator
from localvolume_lab.demo.witness import NotSeen, Witness

CLASS = "copied"
_SIZE = "16Mi"
_SNAPSHOTS = "snapshots"
_BEFORE = "before"
_SOURCE = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": _BEFORE}


class Copies:
    """One scene, after those of `made`. Raises NotSeen or ApiError where something does not come.

    There is no kubelet: what a pod would write to its mount is written where the volume lies.
    """

    def __init__(
        self,
        narrator: Narrator,
        machine: Machine,
        client: Client,
        names: Names,
        witness: Witness,
        made: MadeVolumes,
        *,
        config: str,
    ) -> None:
        self._narrator = narrator
        self._machine = machine
        self._client = client
        self._names = names
        self._witness = witness
        self._made = made
        self._config = config

    async def had_again(self) -> None:
        narrator = self._narrator
        narrator.scene("A snapshot, an accident, and the volume as it was before")
        await self._prepare()
        path = await self._claim("journal")
        narrator.command(write_file(path))
        await self._snapshot("journal")
        await narrator.rest()
        narrator.command(f"rm {path}/secret.txt")
        os.unlink(f"{path}/secret.txt")
        narrator.seen(f"an accident: {_listed(path)} is in the volume")
        again = await self._claim("journal-again", source=True)
        if not written(again):
            raise NotSeen(f"{again} has not what was written")
        narrator.seen(
            f"{_listed(again)} is in it, as it was written; the PersistentVolume was made on the "
            "node of the snapshot before any pod, and a pod would be sent after it"
        )
        await narrator.rest()

    async def _prepare(self) -> None:
        narrator = self._narrator
        narrator.say("The agent gets a second pool, on a btrfs:")
        place = json.dumps(self._machine.copies)
        section = f"shared:\n  hostDir: {place}\n  classes: [{CLASS}]\n  backend: btrfs\n"
        narrator.quote(section)
        began = time.monotonic()
        write_text(f"{self._config}/pools", self._made.pools() + section)
        body = {
            "metadata": {"name": CLASS},
            "provisioner": CSI_DRIVER,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate",
        }
        await self._client.create(STORAGE_CLASSES, body)
        snapshots = {
            "metadata": {"name": _SNAPSHOTS},
            "driver": CSI_DRIVER,
            "deletionPolicy": "Delete",
        }
        await self._client.create(SNAPSHOT_CLASSES, snapshots)
        narrator.say(
            f"StorageClass {CLASS} with the provisioner {CSI_DRIVER}, and VolumeSnapshotClass "
            f"{_SNAPSHOTS}"
        )
        narrator.say(
            "(The sandbox has the kinds of snapshots, and stands in for the cluster's "
            "snapshot-controller. Pods would have the volume from the kubelet, which is not here: "
            "the demo writes where it lies.)"
        )
        await self._made.has_room(CLASS, began)

    async def _claim(self, name: str, *, source: bool = False) -> str:
        """Create it, with the content of the snapshot or none; where its volume lies."""
        narrator, witness = self._narrator, self._witness
        body = claim_manifest(name, CLASS, _SIZE, block=False)
        if source:
            body["spec"]["dataSource"] = _SOURCE
        what = f"dataSource: VolumeSnapshot {_BEFORE}" if source else f"{_SIZE} of class {CLASS}"
        narrator.command(f"kubectl create -f claim-{name}.yaml    # {what}")
        began = time.monotonic()
        await self._client.create(CLAIMS, body, self._names.namespace)
        volume = await witness.until(lambda: witness.bound_to(name), f"claim {name} to be bound")
        seconds = time.monotonic() - began
        self._made.bound.append(seconds)
        path = self._path(volume)
        narrator.seen(
            f"claim {name} is Bound to {volume.metadata.name[:12]}... of {capacity(volume)}, "
            f"{milliseconds(seconds)} after it was created"
        )
        return path

    def _path(self, volume: PersistentVolume) -> str:
        if volume.spec.csi is None:
            raise NotSeen(f"{volume.metadata.name} is no CSI volume")
        path = f"{self._machine.copies}/{volume.spec.csi.volume_handle}"
        if not is_there(path):
            raise NotSeen(f"{path} was to be made and is not there")
        return path

    async def _snapshot(self, claim: str) -> None:
        body: dict[str, Any] = {
            "metadata": {"name": _BEFORE},
            "spec": {
                "volumeSnapshotClassName": _SNAPSHOTS,
                "source": {"persistentVolumeClaimName": claim},
            },
        }
        self._narrator.command(f"kubectl create -f snapshot-{_BEFORE}.yaml    # of claim {claim}")
        began = time.monotonic()
        await self._client.create(SNAPSHOTS, body, self._names.namespace)
        await self._witness.until_found(self._ready, f"VolumeSnapshot {_BEFORE} to be ready")
        self._narrator.seen(
            f"VolumeSnapshot {_BEFORE} is ready {took(began)} later: cut by the agent, nothing "
            "was copied"
        )

    async def _ready(self) -> VolumeSnapshot | None:
        found = await self._client.get(SNAPSHOTS, _BEFORE, self._names.namespace)
        return found if found.status is not None and found.status.ready_to_use else None


def _listed(path: str) -> str:
    return ", ".join(contents(path)) or "nothing"
