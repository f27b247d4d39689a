"""The controller beside a large cluster: 1,000 Nodes and 20,000 PersistentVolumes in the API."""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

from benchmarks.subject import Subject
from benchmarks.table import Figure
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import EVENTS, NODES, PERSISTENT_VOLUMES
from localvolume.kube.objects import EventObject
from localvolume_lab.controlplane import ControlPlane

MIB = 1 << 20
NODE_COUNT = 1000
PER_NODE = 20
LOST = 5
"""How many Nodes are deleted, one after the other; the worst report counts."""

SETTLE_SECONDS = 20.0
SLOTS = 24
SERVED = re.compile(r"served on port (\d+)")


async def controller(plane: ControlPlane, directory: Path) -> list[Figure]:
    """From the start to leading; memory; from a Node's deletion to the first report of it."""
    async with Client(find_access(str(plane.kubeconfig)), user_agent="benchmark") as client:
        await _fill(client)
        reports: dict[str, float] = {}
        news = asyncio.Event()

        def told(_old: EventObject | None, new: EventObject | None) -> None:
            if new is not None and new.reason == "ReferencedNodeDeleted":
                reports.setdefault(new.message, time.monotonic())
                news.set()

        events = Informer(client, EVENTS, on_change=told)
        watching = asyncio.create_task(events.run())
        await events.synced.wait()
        variables = {"KUBECONFIG": str(plane.kubeconfig)}
        arguments = ["controller", "--listen-address", "127.0.0.1:0"]
        log = directory / "controller.log"
        with Subject(arguments, variables, log, directory / "bytecode") as subject:
            await _until_leading(subject, log)
            leading = time.monotonic() - subject.started
            cpu = subject.cpu_seconds()
            await asyncio.sleep(SETTLE_SECONDS)
            rss = subject.rss_bytes()
            waits = []
            for number in range(LOST):
                name = _node_name(number)
                node = await client.get(NODES, name)
                news.clear()
                reports.clear()
                await client.delete(NODES, name, uid=node.metadata.uid)
                deleted = time.monotonic()
                async with asyncio.timeout(60):
                    while not any(name in message for message in reports):
                        await news.wait()
                        news.clear()
                first = min(at for message, at in reports.items() if name in message)
                waits.append(max(0.0, first - deleted))
                await asyncio.sleep(2.0)
            after = subject.rss_bytes()
        watching.cancel()
    size = f"{NODE_COUNT:,} Nodes, {NODE_COUNT * PER_NODE:,} PVs"
    return [
        Figure(f"controller start → leading, synced: {size}", leading, "s", "", 15.0),
        Figure("CPU for it, process start included", cpu, "s", "", None),
        Figure("its RSS then", rss / MIB, "MiB", "", 150.0),
        Figure("Node deleted → first report, worst of 5", max(waits), "s", "", 2.0),
        Figure("its RSS after them", after / MIB, "MiB", "", 150.0),
    ]


def _node_name(number: int) -> str:
    return f"worker-{number:04}.cluster.example"


async def _until_leading(subject: Subject, log: Path, seconds: float = 120.0) -> None:
    async with asyncio.timeout(seconds):
        while not (served := SERVED.search(log.read_text())):
            await asyncio.sleep(0.02)
        url = f"http://127.0.0.1:{served[1]}"
        while not await asyncio.to_thread(_is_leading, url):
            if subject.process.poll() is not None:
                raise RuntimeError(f"the controller ended:\n{log.read_text()}")
            await asyncio.sleep(0.05)


def _is_leading(url: str) -> bool:
    """Whether it leads and both caches are complete, as its own metrics and readiness say."""
    try:
        urllib.request.urlopen(f"{url}/ready", timeout=5).read()
        page = urllib.request.urlopen(f"{url}/metrics", timeout=5).read().decode()
    except OSError:
        return False
    return "\nlocalvolume_leader 1.0\n" in page


async def _fill(client: Client) -> None:
    """As large as the real ones: what kubelet and our agents write, and what is never read."""
    slots = asyncio.Semaphore(SLOTS)

    async def make(kind: Any, body: dict[str, Any]) -> None:
        async with slots:
            await client.create(kind, body)

    await asyncio.gather(*(make(NODES, _node(number)) for number in range(NODE_COUNT)))
    for number in range(0, NODE_COUNT, 100):
        some = range(number, min(NODE_COUNT, number + 100))
        await asyncio.gather(
            *(
                make(PERSISTENT_VOLUMES, _volume(_node_name(n), i))
                for n in some
                for i in range(PER_NODE)
            )
        )


def _node(number: int) -> dict[str, Any]:
    name = _node_name(number)
    labels = {f"example.com/label-{i}": f"value-{i}" for i in range(20)}
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **labels},
            "annotations": {"example.com/filler": "x" * 1000},
        },
        # A Node lists its images: far more than what is read of it.
        "status": {
            "images": [
                {"names": [f"image.example/{i}@sha256:{'0' * 64}"], "sizeBytes": 10**8}
                for i in range(50)
            ]
        },
    }


def _volume(node: str, number: int) -> dict[str, Any]:
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    uid = str(uuid.uuid4())
    return {
        "metadata": {
            "name": f"local-pv-{node}-{number}",
            "labels": {"localvolume.dev/node": node},
            "finalizers": ["localvolume.dev/volume"],
            "annotations": {
                "pv.kubernetes.io/provisioned-by": f"local-volume-provisioner-{node}-{uid}",
                "localvolume.dev/claimed": uid,
                "localvolume.dev/identity": (
                    f'{{"fsType":"ext4","kind":"filesystem","root":"/","uuid":"{uuid.uuid4()}"}}'
                ),
            },
        },
        "spec": {
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "fast",
            "volumeMode": "Filesystem",
            "local": {"path": f"/mnt/fast/disk-{number}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "default",
                "name": f"data-{node}-{number}",
                "uid": uid,
            },
        },
    }
