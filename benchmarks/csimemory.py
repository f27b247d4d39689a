"""The memory of an idle agent that serves CSI, beside that of the stock sidecars on its socket."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from benchmarks.claims import PoolNode, cluster_of, disk
from benchmarks.measures import MB, SETTLE_SECONDS
from benchmarks.subject import Program
from benchmarks.table import Figure
from localvolume.config.provisioner import CSI_DRIVER
from localvolume_lab.controlplane import ComponentsMissing, ControlPlane
from tests.suite import csitools

VOLUMES = 20
GOAL = 46.0
"""In MB."""
ARGUMENTS = {"csi-provisioner": ("--node-deployment", "--strict-topology")}


async def memory(plane: ControlPlane, directory: Path) -> list[Figure]:
    """An agent that has made 20 volumes for claims, and the sidecars that would serve as many."""
    node = PoolNode(plane, directory)
    with disk(node.pool, 4 << 30):
        async with cluster_of(node, provisioner=CSI_DRIVER, binding="Immediate") as cluster:
            with node.agent(backend="image", csi=True) as agent, node.router():
                names = [f"idle-{number}" for number in range(VOLUMES)]
                await asyncio.gather(*(cluster.ask(name, pod=False) for name in names))
                await cluster.until(lambda: all(name in cluster.bound for name in names))
                await asyncio.sleep(SETTLE_SECONDS)
                rss = agent.rss_bytes()
                # Not removed in the end: volumes have finalizers of the sidecars by then.
                sidecars = await _sidecars(node)
    return [Figure(f"CSI: agent's idle RSS, {VOLUMES} volumes", rss / MB, "MB", sidecars, GOAL)]


async def _sidecars(node: PoolNode) -> str:
    """What the built sidecars have together, in words; they find nothing left to do."""
    try:
        built = {name: csitools.provide(name) for name in csitools.SIDECARS}
    except ComponentsMissing:
        return ""
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(
                Program(
                    [
                        str(path),
                        f"--csi-address={node.socket}",
                        f"--kubeconfig={node.plane.kubeconfig}",
                        *ARGUMENTS.get(name, ()),
                    ],
                    {"NODE_NAME": node.name},
                    node.directory / f"{name}.log",
                )
            )
            for name, path in built.items()
        ]
        await asyncio.sleep(SETTLE_SECONDS)
        rss = sum(one.rss_bytes() for one in running) / MB
    return f"{rss:.1f} MB ({' + '.join(built)})"
