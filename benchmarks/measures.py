"""The measurements, one function each: what issue and design promise, in seconds and bytes."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bareclient import create_bare
from benchmarks.node import CLAIMS, Node, prepared
from benchmarks.subject import AS_IN_ITS_IMAGE, Program
from benchmarks.table import Figure
from localvolume.cleaning.method import ZERO
from localvolume.cleaning.run import clean
from localvolume.cleaning.target import Target
from localvolume.host.block.blockdev import probe_block_device
from localvolume.host.process.workers import Workers
from localvolume.kube.client import MergePatch
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume_lab.controlplane import ControlPlane

MIB = 1 << 20
MB = 10**6
SETTLE_SECONDS = 35.0
"""Until idle threads have ended and the start's garbage is collected."""

PUBLISHING_GOAL, COLD_GOAL = 2.0, 1.5
"""How many times the limit: one create by a bare client, and a process that does a thousand."""

CHANGES = 1000
"""Of foreign PersistentVolumes, while the bytes that the agent receives are counted."""


def _percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


async def publishing(plane: ControlPlane, directory: Path) -> list[Figure]:
    """From mount(2) returning to the PersistentVolume, 200 times.

    Creates by a bare client alternate with it: both meet the same machine.
    """
    async with prepared(plane, directory) as node:
        with node.subject():
            node.mount("warm-up")
            await node.until(lambda: len(node.seen) == 1)
            waits, bare = [], []
            for number in range(200):
                await asyncio.sleep(0.05)
                bare.append(await create_bare(node.client, f"{node.name}-bare", number))
                await asyncio.sleep(0.05)
                path = await asyncio.to_thread(node.mount, f"disk-{number:04}")
                mounted = time.monotonic()
                await node.until(lambda path=path: path in node.seen, 30.0)  # type: ignore[misc]
                waits.append(max(0.0, node.seen[path] - mounted))
    p50, limit = statistics.median(waits), statistics.median(bare)
    return [
        Figure("mount → PV, p50 of 200", p50, "s", "5.2 s", PUBLISHING_GOAL * limit, limit),
        Figure("mount → PV, p99 of 200", _percentile(waits, 99), "s", "10 s", 0.25),
    ]


async def cold_start(plane: ControlPlane, directory: Path) -> list[Figure]:
    """From the process's start to 1,000 PersistentVolumes; then idle with them."""
    async with prepared(plane, directory, mounts=1000) as node:
        with node.subject() as subject:
            await node.until(lambda: len(node.seen) == 1000)
            took = max(node.seen.values()) - subject.started
            cpu = subject.cpu_seconds()
            await node.until(lambda: len(node.available) == 1000)
            await asyncio.sleep(SETTLE_SECONDS)
            before, began = subject.cpu_seconds(), time.monotonic()
            await asyncio.sleep(60.0)
            idle = (subject.cpu_seconds() - before) / (time.monotonic() - began) * 100
            rss = subject.rss_bytes()
        # In the end: what it leaves to the cluster's controllers slows nothing of ours down.
        limit = await _bare_start(node, 1000)
    name = "cold start, 1,000 mounts → 1,000 PVs"
    return [
        Figure(name, took, "s", "198 s", COLD_GOAL * limit, limit),
        Figure("CPU for it, process start included", cpu, "s", "2.0 s", 2.0),
        Figure("idle RSS, 1,000 own volumes", rss / MB, "MB", "51 MB", 51.0),
        Figure("idle CPU, 1,000 own volumes", idle, "%", "0.19 %", 0.1),
    ]


async def _bare_start(node: Node, count: int) -> float:
    """Seconds from the start of a bare client to its last create, the faster of two."""
    took = []
    for number in (1, 2):
        client = Program(
            [
                sys.executable,
                "-m",
                "benchmarks.bareclient",
                str(node.plane.kubeconfig),
                f"{node.name}-bare-{number}",
                str(count),
            ],
            AS_IN_ITS_IMAGE,
            node.directory / "bareclient.log",
        )
        with client:
            if await asyncio.to_thread(client.process.wait):
                raise RuntimeError(client.log.read_text())
            took.append(time.monotonic() - client.started)
    return min(took)


async def reuse(plane: ControlPlane, directory: Path) -> list[Figure]:
    """From Released to Available again, ten small volumes one by one."""
    async with prepared(plane, directory, mounts=1) as node:
        with node.subject():
            waits = []
            for number in range(10):
                before = set(node.available)
                await node.until(lambda: bool(node.available))
                claim = await node.client.create(CLAIMS, node.claim(f"c{number}"), "default")
                await node.until(lambda: _phases(node) == {"Bound"})
                (Path(node.disks / "disk-0000") / "data").write_bytes(b"x" * 4096)
                await node.client.delete(
                    CLAIMS, claim.metadata.name, "default", uid=claim.metadata.uid
                )
                old = next(iter(node.informer.items.values())).metadata.uid
                await node.until(lambda old=old: old in node.released)  # type: ignore[misc]
                known = before | {old}
                await node.until(lambda known=known: bool(node.available.keys() - known))  # type: ignore[misc]
                new = (node.available.keys() - known).pop()
                waits.append(node.available[new] - node.released[old])
    return [
        Figure("released → available again, p50 of 10", statistics.median(waits), "s", "18 s", 1.0),
        Figure("released → available again, max", max(waits), "s", "30 s", 1.0),
    ]


def _phases(node: Node) -> set[str]:
    return {volume.status.phase for volume in node.informer.items.values()}


async def foreign(plane: ControlPlane, directory: Path, count: int = 50_000) -> list[Figure]:
    """20 own volumes, idle; then with many foreign PersistentVolumes, and while they change."""
    async with prepared(plane, directory, mounts=20) as node:
        with node.subject() as subject:
            await node.until(lambda: len(node.seen) == 20)
            await asyncio.sleep(SETTLE_SECONDS)
            idle = subject.rss_bytes()
            await _make_foreign(node, count)
            await asyncio.sleep(5.0)
            beside = subject.rss_bytes()
        with node.subject() as subject:
            await asyncio.sleep(SETTLE_SECONDS)
            restarted = subject.rss_bytes()
            received = subject.received_bytes()
            await _change_foreign(node, CHANGES)
            await asyncio.sleep(2.0)
            received = subject.received_bytes() - received
    most = (idle + 2 * MIB) / MB
    beyond = f"RSS with {count:,} foreign PVs"
    return [
        Figure("idle RSS, 20 own volumes", idle / MB, "MB", "41.4 MB", 40.0),
        Figure(f"{beyond}, made meanwhile", beside / MB, "MB", "327 MB", most),
        Figure(f"{beyond}, there before", restarted / MB, "MB", "440 MB", most),
        # Not 0: once a minute each watch gets a bookmark, whatever is changed.
        Figure("received per foreign change", received / CHANGES, "B", "1,690 B", 1.0),
    ]


async def _make_foreign(node: Node, count: int) -> None:
    slots = asyncio.Semaphore(24)
    template = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "elsewhere",
            "volumeMode": "Filesystem",
        },
    }

    async def make(number: int) -> None:
        host = f"foreign-{number // 20}"
        term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}
        spec = {
            **template["spec"],  # type: ignore[dict-item]
            "local": {"path": f"/mnt/disks/{number}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        }
        annotation = f"local-volume-provisioner-{host}-0f0e0d0c"
        metadata = {
            "name": f"{node.name}-foreign-{number}",
            "labels": {"localvolume.dev/node": host},
            "annotations": {"pv.kubernetes.io/provisioned-by": annotation, "filler": "x" * 600},
        }
        async with slots:
            await node.client.create(
                PERSISTENT_VOLUMES, {**template, "metadata": metadata, "spec": spec}
            )

    for start in range(0, count, 2000):
        await asyncio.gather(*(make(n) for n in range(start, min(count, start + 2000))))


async def _change_foreign(node: Node, count: int) -> None:
    for number in range(count):
        patch = MergePatch({"metadata": {"annotations": {"changed": str(number)}}})
        name = f"{node.name}-foreign-{number}"
        await node.client.patch(PERSISTENT_VOLUMES, name, patch)


async def zeroing(directory: Path) -> list[Figure]:
    """512 MiB on a loop device: our method with its proof, dd as upstream runs it, the kernel."""
    with tempfile.NamedTemporaryFile(dir=directory) as backing:
        backing.truncate(512 * MIB)
        argv = ["losetup", "--find", "--show", backing.name]
        device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
        try:
            dirty = ["dd", "if=/dev/urandom", f"of={device}", "bs=4M", "oflag=direct"]
            times: dict[str, float] = {}
            for name in ("dd", "kernel", "ours"):
                subprocess.run(dirty, check=False, stderr=subprocess.DEVNULL)
                subprocess.run(["sync"], check=True)
                began = time.monotonic()
                if name == "dd":
                    zero = ["dd", "if=/dev/zero", f"of={device}", "bs=8096"]
                    subprocess.run(zero, check=False, stderr=subprocess.DEVNULL)
                elif name == "kernel":
                    subprocess.run(["blkdiscard", "-z", device], check=True)
                else:
                    await _zero(device)
                times[name] = time.monotonic() - began
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)
    dd, kernel = times["dd"], times["kernel"]
    return [
        Figure("zeroing 512 MiB, proved", times["ours"], "s", "1.9 s", max(0.2, kernel)),
        Figure("upstream's dd bs=8096 here", dd, "s", "1.9 s", None),
        Figure("the kernel's own here, unproved", kernel, "s", "0.1 to 0.2 s", None),
    ]


async def _zero(device: str) -> None:
    found = probe_block_device(device)
    workers = Workers()
    target = Target("block", device, found.device, identity=found.identity)
    await clean(target, ZERO, workers=workers, progress=lambda _: None, stop=asyncio.Event())
    workers.close()
