"""One node's FlexVolume PersistentVolumes in a sandbox, directories for volumes, and what looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from prometheus_client import CollectorRegistry

from localvolume.config.flexvolume import NAMES, FlexVolumeConfig
from localvolume.config.pools import LvmConfig
from localvolume.flexvolume.binding import Binding
from localvolume.flexvolume.driver import Owned, Volume
from localvolume.flexvolume.drivers.bindmount import BindDriver
from localvolume.flexvolume.keeping import Keeping
from localvolume.flexvolume.metrics import FlexMetrics
from localvolume.flexvolume.plan.binding import tags_of
from localvolume.flexvolume.turns import Turns
from localvolume.host.process.workers import Workers
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import CLAIMS, NODES, PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts
from localvolume_lab.sandbox.sandbox import Sandbox
from tests.suite.units import MIB

NODE = "node-1"
NAME = "pvc-1"
OURS, ELASTIC = marks.FLEX_DRIVER, marks.ELASTIC_FLEX_DRIVER
HELD = "example.com/held"
FACTS = NodeFacts(NODE, "", NODE, {marks.HOSTNAME_LABEL: NODE})


@dataclass
class Ground:
    sandbox: Sandbox
    client: Client
    root: Path

    def __post_init__(self) -> None:
        self.driver = BindDriver(str(self.root))

    def keeping(
        self,
        kind: Literal["lvm", "bindmount"] = "bindmount",
        *,
        names: tuple[str, ...] = NAMES,
        node: str = NODE,
        page: int = 500,
    ) -> Keeping:
        workers = Workers()
        lvm = LvmConfig(group="disks") if kind == "lvm" else None
        return Keeping(
            client=self.client,
            events=EventRecorder(self.client, "test", NODE),
            workers=workers,
            config=FlexVolumeConfig(driver=kind, lvm=lvm, names=names),
            driver=self.driver,
            turns=Turns(workers),
            binding=Binding(self.client, node, lambda: self.client.get(NODES, NODE), lambda _: 0),
            metrics=FlexMetrics(CollectorRegistry()),
            node_name=node,
            saw_volume=lambda _: None,
            saw_claim=lambda _: None,
            page=page,
        )

    async def look(
        self, keeping: Keeping, claims: Mapping[str, PersistentVolumeClaim] | None = None
    ) -> None:
        volumes = {NAME: await self.live()}
        self.sandbox.requests.clear()
        await keeping.look(FACTS, volumes, claims or {})

    # --- objects -------------------------------------------------------------------------------

    async def volume(
        self,
        *,
        name: str = NAME,
        driver: str = OURS,
        phase: str = "Bound",
        finalizers: tuple[str, ...] = (marks.FINALIZER,),
        labels: Mapping[str, str] | None = None,
        claim_uid: str = "c-1",
    ) -> PersistentVolume:
        term = {"key": marks.HOSTNAME_LABEL, "operator": "In", "values": [NODE]}
        spec: dict[str, Any] = {
            "capacity": {"storage": "8Mi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "flexVolume": {"driver": driver},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        }
        if claim_uid:
            spec["claimRef"] = {"namespace": "default", "name": "data", "uid": claim_uid}
        metadata = {"name": name, "finalizers": list(finalizers), "labels": dict(labels or {})}
        await self.client.create(PERSISTENT_VOLUMES, {"metadata": metadata, "spec": spec})
        patch = MergePatch({"status": {"phase": phase}})
        return await self.client.patch(PERSISTENT_VOLUMES, name, patch, subresource="status")

    async def live(self) -> PersistentVolume:
        return await self.client.get(PERSISTENT_VOLUMES, NAME)

    async def delete(self, volume: PersistentVolume) -> None:
        await self.client.delete(PERSISTENT_VOLUMES, NAME, uid=volume.metadata.uid)

    async def claim(self, asks: str = "16Mi") -> PersistentVolumeClaim:
        body = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": asks}},
                "volumeName": NAME,
            },
        }
        await self.client.create(CLAIMS, body, "default")
        patch = MergePatch({"status": {"phase": "Bound", "capacity": {"storage": "8Mi"}}})
        return await self.client.patch(CLAIMS, "data", patch, "default", subresource="status")

    def writes(self) -> list[tuple[str, str]]:
        asked = self.sandbox.requests
        return [(one.verb, one.resource) for one in asked if one.verb not in ("get", "list")]

    # --- directories ---------------------------------------------------------------------------

    def mounted(self, volume: PersistentVolume) -> None:
        """As a pod has had it."""
        tags = {key: value for key, value in tags_of(volume).items() if value}
        target = self.root.parent / "target"
        target.mkdir()
        self.driver.mount(Volume(name=NAME, size_bytes=8 * MIB, tags=tags), str(target))
        self.driver.unmount(NAME, str(target))

    def owned(self) -> Owned:
        (found,) = self.driver.list_volumes()
        return found
