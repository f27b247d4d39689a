"""Claims that the CSI driver serves: how long users wait, beside what the cluster takes by itself.

The limit is a claim for which a client makes the PersistentVolume at once, with one call: all that
is left is the cluster's own binding. Such claims and ours alternate: both meet the same machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.claims import Cluster, PoolNode, cluster_of, crowd, disk
from benchmarks.table import Figure
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES
from localvolume_lab.controlplane import ControlPlane

GIB = 1 << 30
ONE_BY_ONE = 20
AT_ONCE = 200
GOAL = 0.06
CROWD_GOAL = 6.0
QUIET_SECONDS = 0.3
"""Between two claims, so that none waits for what the last one left to do."""


async def claims(plane: ControlPlane, directory: Path) -> list[Figure]:
    """Claim created → Bound: alone and in a crowd, and then with a filesystem to be made."""
    async with _served(plane, directory, "directory") as cluster:
        figures = [await _one_by_one(cluster, "directory", "1Mi")]
        limit = await _crowd_of_bare(cluster)
        last = await crowd(cluster, AT_ONCE, pod=False)
        name = f"CSI: {AT_ONCE} claims at once, last Bound"
        figures.append(Figure(name, last, "s", "", CROWD_GOAL, limit))
    async with _served(plane, directory, "image") as cluster:
        figures.append(await _one_by_one(cluster, "ext4 image of 1 GiB", "1Gi"))
    return figures


@contextlib.asynccontextmanager
async def _served(plane: ControlPlane, directory: Path, backend: str) -> AsyncIterator[Cluster]:
    node = PoolNode(plane, directory)
    with disk(node.pool, 64 * GIB):
        async with cluster_of(node, provisioner=CSI_DRIVER, binding="Immediate") as cluster:
            with node.agent(backend=backend, csi=True), node.router():
                await cluster.warm_up(pod=False)
                yield cluster
                await cluster.clear()


async def _one_by_one(cluster: Cluster, what: str, size: str) -> Figure:
    resources = {"requests": {"storage": size}}
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    asks: dict[str, Callable[[str], Awaitable[float]]] = {
        "ours": lambda name: cluster.ask(name, pod=False, resources=resources),
        "bare": lambda name: ask_bare(cluster, name),
    }
    for number in range(ONE_BY_ONE):
        for kind, ask in asks.items():
            name = f"{kind}-{number}"
            began = await ask(name)
            await cluster.until(lambda name=name: name in cluster.bound)  # type: ignore[misc]
            times[kind].append(cluster.bound[name] - began)
            await asyncio.sleep(QUIET_SECONDS)
    ours, bare = (statistics.median(times[kind]) for kind in ("ours", "bare"))
    return Figure(f"CSI: claim → Bound, {what}, p50 of {ONE_BY_ONE}", ours, "s", "", GOAL, bare)


async def _crowd_of_bare(cluster: Cluster) -> float:
    names = [f"bare-crowd-{number}" for number in range(AT_ONCE)]
    began = time.monotonic()
    await asyncio.gather(*(ask_bare(cluster, name) for name in names))
    await cluster.until(lambda: all(name in cluster.bound for name in names))
    return max(cluster.bound[name] for name in names) - began


async def ask_bare(cluster: Cluster, name: str) -> float:
    """A claim of a class that nobody serves, and a volume for it; when the claim was made."""
    began = time.monotonic()
    nobodys = f"{cluster.name}-bare"
    body = cluster.claim(name, storageClassName=nobodys)
    claim = await cluster.client.create(CLAIMS, body, "default")
    reference = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name}
    spec: dict[str, Any] = {
        "capacity": {"storage": "1Mi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": nobodys,
        "csi": {"driver": "bare.example", "volumeHandle": name},
        "claimRef": {"apiVersion": "v1", "uid": claim.metadata.uid, **reference},
    }
    volume = {"metadata": {"name": f"{cluster.name}-{name}"}, "spec": spec}
    await cluster.client.create(PERSISTENT_VOLUMES, volume)
    return began
