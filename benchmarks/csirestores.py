"""Restores: from a claim for a snapshot's content to Bound, beside the bare copy and binding.

The real snapshot-controller makes the snapshot's objects, our agent all the rest; no pod is needed.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.claims import Cluster, PoolNode, cluster_of, disk
from benchmarks.csi import ask_bare
from benchmarks.csisnapshots import DISK, GIB, LARGE, copy, image_of
from benchmarks.table import Figure
from localvolume.config.provisioner import CSI_DRIVER
from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_snapshots import SNAPSHOT_CLASSES, SNAPSHOTS, snapshot_controller

TIMES = 10
GOAL = 0.25
QUIET_SECONDS = 0.3


async def restores(plane: ControlPlane, directory: Path) -> list[Figure]:
    """VolumeSnapshot → ready, then claim → Bound, one after the other."""
    node = PoolNode(plane, directory)
    with snapshot_controller(plane, directory), disk(node.pool, DISK):
        async with cluster_of(node, provisioner=CSI_DRIVER, binding="Immediate") as cluster:
            with node.agent(backend="image", csi=True), node.router():
                await cluster.warm_up(pod=False)
                figures = await _measured(plane, cluster, node)
                await cluster.clear()
    return figures


async def _measured(plane: ControlPlane, cluster: Cluster, node: PoolNode) -> list[Figure]:
    size = {"requests": {"storage": str(LARGE)}}
    await cluster.ask("source", pod=False, resources=size)
    await cluster.until(lambda: "source" in cluster.bound)
    image = image_of(node.pool, cluster.volumes["source"].metadata.name)
    ready = await _cut(plane, cluster.name)
    named = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": cluster.name}
    ours, bare = [], []
    for number in range(TIMES):
        name = f"restored-{number}"
        began = await cluster.ask(name, pod=False, resources=size, dataSource=named)
        await cluster.until(lambda name=name: name in cluster.bound)  # type: ignore[misc]
        ours.append(cluster.bound[name] - began)
        await asyncio.sleep(QUIET_SECONDS)
        began = await ask_bare(cluster, f"bare-{name}")
        await cluster.until(lambda name=name: f"bare-{name}" in cluster.bound)  # type: ignore[misc]
        bare.append(cluster.bound[f"bare-{name}"] - began + copy(image))
        await asyncio.sleep(QUIET_SECONDS)
    await asyncio.to_thread(plane.request, "DELETE", f"{SNAPSHOTS}/{cluster.name}")
    what, limit = f"{LARGE // GIB} GiB", statistics.median(bare)
    return [
        Figure(f"CSI: VolumeSnapshot of {what} → ready", ready, "s", "", None),
        Figure(f"CSI: restore of {what} → Bound", statistics.median(ours), "s", "", GOAL, limit),
    ]


async def _cut(plane: ControlPlane, name: str) -> float:
    """A VolumeSnapshot of the source; how long it takes to be ready."""
    _make(plane, SNAPSHOT_CLASSES, name, driver=CSI_DRIVER, deletionPolicy="Delete")
    began = time.monotonic()
    source = {"persistentVolumeClaimName": "source"}
    _make(plane, SNAPSHOTS, name, spec={"volumeSnapshotClassName": name, "source": source})
    async with asyncio.timeout(60):
        while not _is_ready(await asyncio.to_thread(plane.request, "GET", f"{SNAPSHOTS}/{name}")):
            await asyncio.sleep(0.01)
    return time.monotonic() - began


def _is_ready(snapshot: Any) -> bool:
    return bool(snapshot.get("status", {}).get("readyToUse"))


def _make(plane: ControlPlane, path: str, name: str, **fields: Any) -> None:
    kind = {SNAPSHOTS: "VolumeSnapshot", SNAPSHOT_CLASSES: "VolumeSnapshotClass"}[path]
    group = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": kind}
    plane.request("POST", path, {**group, "metadata": {"name": name}, **fields})
