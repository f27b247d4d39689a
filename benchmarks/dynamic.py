"""Volumes made for claims: how long users wait for them and for their end, and what they cost.

As users have it: a WaitForFirstConsumer class, the real scheduler, our controller that routes and
our agent that makes. The pods are objects only; nobody runs them.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import time
from pathlib import Path

from benchmarks.claims import Cluster, PoolNode, cluster_of, crowd
from benchmarks.subject import Subject
from benchmarks.table import Figure
from localvolume_lab.controlplane import ControlPlane

MIB = 1 << 20
ONE_BY_ONE = 20
FILES, PER_DIRECTORY = 50_000, 500
VOLUMES = 500


async def dynamic(plane: ControlPlane, directory: Path) -> list[Figure]:
    """Claim and pod created → Bound, alone and in crowds; removal; memory."""
    node = PoolNode(plane, directory)
    agent = node.agent(backend="directory", csi=False)
    async with cluster_of(node) as cluster:
        with agent, node.router():
            return await _measured(cluster, agent, node.pool, directory)


async def _measured(cluster: Cluster, agent: Subject, pool: Path, directory: Path) -> list[Figure]:
    await cluster.warm_up()
    waits = []
    for number in range(ONE_BY_ONE):
        name = f"one-{number}"
        began = await cluster.ask(name)
        await cluster.until(lambda name=name: name in cluster.bound)  # type: ignore[misc]
        waits.append(cluster.bound[name] - began)
        await asyncio.sleep(0.3)
    crowds = {count: await crowd(cluster, count) for count in (20, 200)}
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


async def _removal(cluster: Cluster, pool: Path, directory: Path) -> tuple[float, float, float]:
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


async def _fill(cluster: Cluster, count: int) -> None:
    names = [f"fill-{number}" for number in range(count - len(cluster.volumes))]
    for first in range(0, len(names), 50):
        some = names[first : first + 50]
        await asyncio.gather(*(cluster.ask(name) for name in some))
        await cluster.until(lambda some=some: all(one in cluster.bound for one in some))  # type: ignore[misc]
