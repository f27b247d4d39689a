"""A node that exists as an object only, with real volumes: prepared, watched, and removed again."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from benchmarks.subject import Subject
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes.marks import NODE_LABEL
from localvolume_lab.controlplane import ControlPlane

MS_BIND = 4096
_LIBC = ctypes.CDLL(None, use_errno=True)


def mount(source: str, where: Path, fs_type: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2) itself: a command's own end would count as time that nobody waited."""
    words = (os.fsencode(word) for word in (source, where, fs_type))
    if _LIBC.mount(*words, flags, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount", str(where))


class Node:
    """One node with one class of each mode, and a watch of our own on its PersistentVolumes."""

    def __init__(self, plane: ControlPlane, client: Client, directory: Path) -> None:
        self.plane, self.client = plane, client
        self.name = f"bench-{uuid.uuid4().hex[:8]}"
        self.directory = directory / self.name
        self.disks, self.devices = self.directory / "disks", self.directory / "devices"
        self.config = self.directory / "config"
        for path in (self.disks, self.devices, self.config):
            path.mkdir(parents=True)
        self.classes = {"Filesystem": f"{self.name}-disks", "Block": f"{self.name}-devices"}
        (self.config / "storageClassMap").write_text(
            f"{self.classes['Filesystem']}:\n  hostDir: {self.disks}\n  mountDir: {self.disks}\n"
            f"{self.classes['Block']}:\n  hostDir: {self.devices}\n  mountDir: {self.devices}\n"
            "  volumeMode: Block\n"
        )
        self.seen: dict[str, float] = {}
        """When the PersistentVolume of a path was first seen."""
        self.available: dict[str, float] = {}
        """When the object with this UID was first seen Available."""
        self.released: dict[str, float] = {}
        self.paths: dict[str, str] = {}
        self._changed = asyncio.Event()
        self.informer = Informer(
            client,
            PERSISTENT_VOLUMES,
            label_selector=f"{NODE_LABEL}={self.name}",
            on_change=self._on_change,
        )

    def _on_change(self, _old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        now = time.monotonic()
        if new is not None and new.spec.local is not None:
            uid = new.metadata.uid
            self.paths[uid] = new.spec.local.path
            self.seen.setdefault(new.spec.local.path, now)
            if new.status.phase == "Available":
                self.available.setdefault(uid, now)
            elif new.status.phase == "Released":
                self.released.setdefault(uid, now)
        self._changed.set()

    async def until(self, condition: Callable[[], bool], seconds: float = 300.0) -> None:
        """Wait, without polling, for what the watch will show."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def subject(self) -> Subject:
        """The agent of this node."""
        return Subject(
            ["agent", "--config", str(self.config), "--listen-address", "127.0.0.1:0"],
            {
                "MY_NODE_NAME": self.name,
                "KUBECONFIG": str(self.plane.kubeconfig),
                "KUBELET_DIR": "none",
            },
            self.directory / "agent.log",
            self.directory.parent / "bytecode",
        )

    def mount(self, name: str) -> str:
        """Mount a small tmpfs in the discovery directory; its path."""
        path = self.disks / name
        path.mkdir()
        mount("bench", path, "tmpfs", options="size=16m")
        return str(path)

    def claim(self, name: str, mode: str = "Filesystem") -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": self.classes[mode],
                "volumeMode": mode,
                "resources": {"requests": {"storage": "1Mi"}},
            },
        }


@contextlib.asynccontextmanager
async def prepared(plane: ControlPlane, directory: Path, mounts: int = 0) -> AsyncIterator[Node]:
    """A node with that many mounts; everything of it is removed at the end."""
    async with Client(find_access(str(plane.kubeconfig)), user_agent="benchmark") as client:
        node = Node(plane, client, directory)
        plane.create_node(node.name)
        for name in node.classes.values():
            body = {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "Immediate",
            }
            await client.create(STORAGE_CLASSES, body)
        for number in range(mounts):
            node.mount(f"disk-{number:04}")
        watching = asyncio.create_task(node.informer.run())
        await node.informer.synced.wait()
        try:
            yield node
        finally:
            watching.cancel()
            for mounted in node.disks.iterdir():
                subprocess.run(["umount", "--lazy", str(mounted)], check=False)


__all__ = ["CLAIMS", "Node", "prepared"]
