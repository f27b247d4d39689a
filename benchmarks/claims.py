"""Claims on a real control plane: the agent that makes their volumes, and what a watch shows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.subject import Subject
from localvolume.backends.image.links import LINKS
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes.marks import DYNAMIC_PROVISIONER
from localvolume_lab.controlplane import ControlPlane

AT_ONCE = 24
_LOOPS = ["losetup", "--noheadings", "--output", "NAME,BACK-FILE"]


class Cluster:
    """The claims and volumes of the benchmark's class, as a watch shows them."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        """The StorageClass and the node have the same name."""
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

    async def warm_up(self, *, pod: bool = True) -> None:
        """Have one claim served, and all of its consequences seen."""
        await self.ask("warm-up", pod=pod)
        await self.until(lambda: "warm-up" in self.bound)
        await asyncio.sleep(2)

    async def ask(self, name: str, *, pod: bool = True, **spec: Any) -> float:
        """A claim, and a pod that wants it; when they were asked for."""
        began = time.monotonic()
        await self.client.create(CLAIMS, self.claim(name, **spec), "default")
        if pod:
            await self.client.create(PODS, _pod(name), "default")
        return began

    def claim(self, name: str, **spec: Any) -> dict[str, Any]:
        """A claim of the class, with these fields of its spec."""
        return {
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": self.name,
                "resources": {"requests": {"storage": "1Mi"}},
                **spec,
            },
        }

    async def clear(self) -> None:
        """Delete all claims, and wait until the volumes of the class are gone."""
        names = [claim.metadata.name for claim in self.claims.items.values()]
        await asyncio.gather(*(self.give_up(name) for name in names))
        await self.until(lambda: not any(self._is_ours(one) for one in self.volumes.values()))

    def _is_ours(self, volume: PersistentVolume) -> bool:
        return volume.spec.storage_class_name == self.name

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


class PoolNode:
    """A node that exists as an object only, whose agent makes volumes in one pool.

    Its directory `kubelet` is there as a kubelet has it, for an agent that serves CSI.
    """

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.plane, self.name = plane, f"bench-{uuid.uuid4().hex[:8]}"
        self.directory = directory / self.name
        self.pool, self.kubelet = self.directory / "pool", self.directory / "kubelet"
        self.config = self.directory / "config"
        self.socket = self.kubelet / "plugins" / CSI_DRIVER / "csi.sock"
        for path in (self.pool, self.config):
            path.mkdir(parents=True)
        for name in ("plugins", "plugins_registry", "pods"):
            (self.kubelet / name).mkdir(parents=True)
        plane.create_node(self.name)
        amounts = {"capacity": {"pods": "1000"}, "allocatable": {"pods": "1000"}}
        plane.request(
            "PATCH",
            f"/api/v1/nodes/{self.name}/status",
            {"status": amounts},
            content_type="application/merge-patch+json",
        )

    def agent(self, *, backend: str, csi: bool) -> Subject:
        """The agent of this node. Its pool needs no disk of its own, and enforces what it can."""
        enforce = "  enforce: none\n" if backend == "directory" else ""
        (self.config / "pools").write_text(
            f"bench:\n  hostDir: {self.pool}\n  backend: {backend}\n{enforce}"
            "  mustBeMounted: false\n"
        )
        arguments = ["agent", "--config", str(self.config), "--listen-address", "127.0.0.1:0"]
        return Subject(
            [*arguments, *(["--csi"] if csi else [])],
            {**self._variables(), "KUBELET_DIR": str(self.kubelet)},
            self.directory / "agent.log",
            self.directory.parent / "bytecode",
        )

    def router(self) -> Subject:
        """The controller, which routes claims to nodes."""
        return Subject(
            ["controller", "--listen-address", "127.0.0.1:0"],
            self._variables(),
            self.directory / "router.log",
            self.directory.parent / "bytecode",
        )

    def _variables(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.plane.kubeconfig), "MY_NODE_NAME": self.name}


@contextlib.contextmanager
def disk(where: Path, size: int) -> Iterator[None]:
    """Mount a new xfs there, which can clone files; loop devices on its files go in the end."""
    backing = where.with_name(f"{where.name}.img")
    with backing.open("wb") as file:
        file.truncate(size)
    device = _said(["losetup", "--find", "--show", "--direct-io=on", str(backing)])
    try:
        subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", device], check=True)
        subprocess.run(["mount", device, str(where)], check=True)
        try:
            yield
        finally:
            for line in _said(["losetup", "--noheadings", "--output", "NAME,BACK-FILE"]).split(
                "\n"
            ):
                node, _, file_name = line.partition(" ")
                if file_name.strip().startswith(f"{where}/"):
                    subprocess.run(["losetup", "--detach", node], check=True)
            _forget_links(where)
            subprocess.run(["umount", "--lazy", str(where)], check=True)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
        backing.unlink()


def _forget_links(pool: Path) -> None:
    """Remove the links to devices that an agent leaves in /run, as after a reboot."""
    marker = pool / ".localvolume" / "pool.json"
    if marker.exists():
        shutil.rmtree(Path(LINKS, json.loads(marker.read_text())["id"]), ignore_errors=True)


def _said(argv: list[str]) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@contextlib.asynccontextmanager
async def cluster_of(
    node: PoolNode, *, provisioner: str = DYNAMIC_PROVISIONER, binding: str = "WaitForFirstConsumer"
) -> AsyncIterator[Cluster]:
    """A StorageClass of that provisioner, and watches of all claims and volumes."""
    async with Client(
        find_access(str(node.plane.kubeconfig)), user_agent="benchmark", concurrency=AT_ONCE
    ) as client:
        body = {
            "metadata": {"name": node.name},
            "provisioner": provisioner,
            "volumeBindingMode": binding,
        }
        await client.create(STORAGE_CLASSES, body)
        cluster = Cluster(client, node.name)
        watching = [asyncio.create_task(one.run()) for one in (cluster.claims, cluster.informer)]
        await cluster.claims.synced.wait()
        await cluster.informer.synced.wait()
        yield cluster
        for task in watching:
            task.cancel()


async def crowd(cluster: Cluster, count: int, *, pod: bool = True) -> float:
    """Seconds from the first request to the last claim Bound."""
    names = [f"crowd-{count}-{number}" for number in range(count)]
    began = time.monotonic()
    await asyncio.gather(*(cluster.ask(name, pod=pod) for name in names))
    await cluster.until(lambda: all(name in cluster.bound for name in names))
    took = max(cluster.bound[name] for name in names) - began
    await asyncio.gather(*(cluster.give_up(name) for name in names))
    await cluster.until(lambda: not any(name in cluster.volumes for name in names))
    return took
