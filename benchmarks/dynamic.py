"""Volumes made for claims: how long users wait for them and for their end, and what they cost.

As users have it: a WaitForFirstConsumer class, the real scheduler, our controller that routes and
our agent that makes. The pods are objects only; nobody runs them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from benchmarks.subject import Subject
from benchmarks.table import Figure
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes.marks import DYNAMIC_PROVISIONER
from localvolume_lab.controlplane import ControlPlane

MIB = 1 << 20
ONE_BY_ONE = 20
FILES, PER_DIRECTORY = 50_000, 500
VOLUMES = 500
AT_ONCE = 24


class _Cluster:
    """The claims and volumes of the benchmark's class, as a watch shows them."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self.bound: dict[str, float] = {}
        """When a claim was first seen Bound, by its name."""
        self.volumes: dict[str, PersistentVolume] = {}
        """The PersistentVolumes there are, by the claim's name."""
        self.gone: dict[str, float] = {}
        self._changed = asyncio.Event()
        self.claims = Informer(client, CLAIMS, on_change=self._claim_changed)
        self.informer = Informer(client, PERSISTENT_VOLUMES, on_change=self._volume_changed)

    def _claim_changed(
        self, _old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
    ) -> None:
        if new is not None and new.status.phase == "Bound":
            self.bound.setdefault(new.metadata.name, time.monotonic())
            self._changed.set()

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        volume = new or old
        assert volume is not None
        claim = volume.spec.claim_ref.name if volume.spec.claim_ref else ""
        if new is not None:
            self.volumes[claim] = new
        elif self.volumes.pop(claim, None):
            self.gone[claim] = time.monotonic()
        self._changed.set()

    async def until(self, condition: Callable[[], bool], seconds: float = 600.0) -> None:
        """Wait, without polling, for what the watch will show."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def ask(self, name: str, *, pod: bool = True) -> float:
        """A claim, and a pod that wants it; when they were asked for."""
        began = time.monotonic()
        await self.client.create(CLAIMS, self._claim(name), "default")
        if pod:
            await self.client.create(PODS, _pod(name), "default")
        return began

    def _claim(self, name: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": self.name,
                "resources": {"requests": {"storage": "1Mi"}},
            },
        }

    async def give_up(self, name: str) -> float:
        """Delete the pod, then the claim; when the claim was deleted."""
        with contextlib.suppress(Exception):
            pod = await self.client.get(PODS, name, "default")
            await self.client.delete(PODS, name, "default", uid=pod.metadata.uid)
        claim = await self.client.get(CLAIMS, name, "default")
        await self.client.delete(CLAIMS, name, "default", uid=claim.metadata.uid)
        return time.monotonic()


def _pod(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "idle", "image": "registry.example/idle"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
        },
    }


async def dynamic(plane: ControlPlane, directory: Path) -> list[Figure]:
    """Claim and pod created → Bound, alone and in crowds; removal; memory."""
    async with _serving(plane, directory) as (cluster, agent, pool):
        waits = []
        for number in range(ONE_BY_ONE):
            name = f"one-{number}"
            began = await cluster.ask(name)
            await cluster.until(lambda name=name: name in cluster.bound)  # type: ignore[misc]
            waits.append(cluster.bound[name] - began)
            await asyncio.sleep(0.3)
        crowds = {count: await _crowd(cluster, count) for count in (20, 200)}
        removal = await _removal(cluster, pool, directory)
        await _fill(cluster, VOLUMES)
        await asyncio.sleep(20)
        rss = agent.rss_bytes()
    ours, theirs, user = removal
    deciles = statistics.quantiles(waits, n=10)
    return [
        Figure("claim + pod → Bound, p50 of 20", statistics.median(waits), "s", "1.08 s", 0.15),
        Figure("the same, p90", deciles[8], "s", "2.1 s", None),
        Figure("20 at once on one node, last Bound", crowds[20], "s", "48.9 s", 2.0),
        Figure("200 at once on one node, last Bound", crowds[200], "s", "", 12.0),
        Figure("50,000 files: claim deleted → PV gone", user, "s", "13.1 s", 0.1),
        Figure("50,000 files: really gone", ours, "s", "13.1 s", theirs),
        Figure("rm -rf of the same", theirs, "s", "", None),
        Figure(f"agent RSS, {VOLUMES} volumes", rss / MIB, "MiB", "45.4 MB with 31", None),
    ]


@contextlib.asynccontextmanager
async def _serving(
    plane: ControlPlane, directory: Path
) -> AsyncIterator[tuple[_Cluster, Subject, Path]]:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    pool, config = directory / name / "pool", directory / name / "config"
    for path in (pool, config):
        path.mkdir(parents=True)
    (config / "pools").write_text(
        f"bench:\n  hostDir: {pool}\n  enforce: none\n  mustBeMounted: false\n"
    )
    plane.create_node(name)
    amounts = {"capacity": {"pods": "1000"}, "allocatable": {"pods": "1000"}}
    plane.request(
        "PATCH",
        f"/api/v1/nodes/{name}/status",
        {"status": amounts},
        content_type="application/merge-patch+json",
    )
    variables = {"KUBECONFIG": str(plane.kubeconfig), "MY_NODE_NAME": name}
    listen = ("--listen-address", "127.0.0.1:0")
    bytecode = directory / "bytecode"
    agent = Subject(
        ["agent", "--config", str(config), *listen], variables, directory / "agent.log", bytecode
    )
    router = Subject(["controller", *listen], variables, directory / "router.log", bytecode)
    async with Client(
        find_access(str(plane.kubeconfig)), user_agent="benchmark", concurrency=AT_ONCE
    ) as client:
        body = {
            "metadata": {"name": name},
            "provisioner": DYNAMIC_PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        await client.create(STORAGE_CLASSES, body)
        cluster = _Cluster(client, name)
        watching = [asyncio.create_task(one.run()) for one in (cluster.claims, cluster.informer)]
        await cluster.claims.synced.wait()
        await cluster.informer.synced.wait()
        with agent, router:
            await cluster.ask("warm-up")
            await cluster.until(lambda: "warm-up" in cluster.bound)
            await asyncio.sleep(2)
            yield cluster, agent, pool
        for task in watching:
            task.cancel()


async def _crowd(cluster: _Cluster, count: int) -> float:
    """Seconds from the first request to the last claim Bound."""
    names = [f"crowd-{count}-{number}" for number in range(count)]
    began = time.monotonic()
    await asyncio.gather(*(cluster.ask(name) for name in names))
    await cluster.until(lambda: all(name in cluster.bound for name in names))
    took = max(cluster.bound[name] for name in names) - began
    await asyncio.gather(*(cluster.give_up(name) for name in names))
    await cluster.until(lambda: not any(name in cluster.volumes for name in names))
    return took


async def _removal(cluster: _Cluster, pool: Path, directory: Path) -> tuple[float, float, float]:
    """Seconds until the files are gone, by us and by rm -rf, and until the user sees it."""
    await cluster.ask("many")
    await cluster.until(lambda: "many" in cluster.bound)
    volume = cluster.volumes["many"]
    assert volume.spec.local is not None
    _plant(Path(volume.spec.local.path))
    other = directory / "other"
    other.mkdir()
    _plant(other)
    os.sync()
    began = time.monotonic()
    subprocess.run(["rm", "-rf", str(other)], check=True)
    theirs = time.monotonic() - began
    os.sync()
    deleted = await cluster.give_up("many")
    await cluster.until(lambda: "many" in cluster.gone)
    trash = pool / ".localvolume" / "trash"
    while any(trash.iterdir()):
        await asyncio.sleep(0.005)
    return time.monotonic() - deleted, theirs, cluster.gone["many"] - deleted


def _plant(where: Path) -> None:
    """As upstream's measurement had it: files of 200 bytes, 500 in each directory."""
    content = b"x" * 200
    for number in range(FILES // PER_DIRECTORY):
        directory = where / str(number)
        directory.mkdir()
        for file in range(PER_DIRECTORY):
            (directory / str(file)).write_bytes(content)


async def _fill(cluster: _Cluster, count: int) -> None:
    names = [f"fill-{number}" for number in range(count - len(cluster.volumes))]
    for first in range(0, len(names), 50):
        some = names[first : first + 50]
        await asyncio.gather(*(cluster.ask(name) for name in some))
        await cluster.until(lambda some=some: all(one in cluster.bound for one in some))  # type: ignore[misc]
