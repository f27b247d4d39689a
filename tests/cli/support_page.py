"""The page in a real browser, of a cluster that the sandbox's API server holds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Page, ViewportSize, async_playwright

from localvolume.volumes.moments import written
from localvolume_lab.sandbox import Sandbox
from localvolume_lab.sandbox.api import Api
from localvolume_lab.sandbox.kinds import (
    CLAIMS,
    EVENTS,
    NODES,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    Resource,
)
from localvolume_lab.sandbox.store import Body

SCREENSHOTS = Path(__file__).parents[2] / "build/screenshots"
NODE = "localvolume.dev/node"
HEALTH = "localvolume.dev/health"
HOSTNAME = "kubernetes.io/hostname"
DESKTOP, PHONE = ViewportSize(width=1400, height=900), ViewportSize(width=390, height=844)
# A slow machine with other tests beside it.
PATIENCE_MS = 120_000


class Cluster:
    """Writes what a cluster has into the sandbox's store."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._make(STORAGE_CLASSES, "fast", {"provisioner": "kubernetes.io/no-provisioner"})
        self._make(STORAGE_CLASSES, "made", {"provisioner": "dynamic.localvolume.dev"})

    def fill(self, nodes: int, volumes: int) -> None:
        """A controller, nodes with a ready agent each, and as many volumes on each; two of three
        are bound."""
        self.controller()
        for number in range(nodes):
            name = f"worker-{number}"
            self.node(name)
            for index in range(volumes):
                at = number * volumes + index
                claim = f"db-{at}" if at % 3 else ""
                self.volume(f"local-pv-{at:05}", name, gib=10 + at * 7 % 90, claim=claim)

    def node(self, name: str) -> None:
        made = self._make(NODES, name, {}, labels={HOSTNAME: name})
        self._pod(f"lvp-{name}", "DaemonSet", name)
        driver = "csi.storage.k8s.io/drivername"
        room = {
            "metadata": {"labels": {NODE: name, driver: "dynamic.localvolume.dev"}},
            "storageClassName": "made",
            "nodeTopology": {"matchLabels": {HOSTNAME: name}},
            "capacity": "40Gi",
            "maximumVolumeSize": "30Gi",
        }
        self._make(STORAGE_CAPACITIES, f"room-{made['metadata']['uid']}", room, "default")

    def tells(self, node: str, *, pools: Any = None, disks: Any = None) -> None:
        """What the node's agent has written down; a text is written as it is."""
        notes = {"pools": pools, "disks": disks}
        for what, note in notes.items():
            if note is None:
                continue
            text = note if isinstance(note, str) else json.dumps(note)
            manager = {"pools": "localvolume", "disks": "localvolume-disks"}[what]
            body = {
                "metadata": {
                    "labels": {NODE: node, "csi.storage.k8s.io/managed-by": manager},
                    "annotations": {f"localvolume.dev/{what}": text},
                },
                "storageClassName": "localvolume-disks" if what == "disks" else "made-too",
                "nodeTopology": {"matchLabels": {HOSTNAME: node}},
            }
            self._make(STORAGE_CAPACITIES, f"{what}-of-{node}", body, "default")

    def node_event(self, node: str, reason: str, message: str, ago_seconds: float) -> None:
        """A warning of our agent about its Node."""
        source = {"component": "local-volume-provisioner", "host": node}
        event = {
            "involvedObject": {"kind": "Node", "name": node, "uid": node},
            "reason": reason,
            "message": message,
            "type": "Warning",
            "source": source,
            "lastTimestamp": written(time.time() - ago_seconds),
        }
        self._make(EVENTS, f"{node}.{reason.lower()}", event, "default")

    def controller(self) -> None:
        self._pod("lvp-controller", "ReplicaSet")

    def _pod(self, name: str, owner: str, node: str = "") -> None:
        """A ready pod with our label."""
        owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "lvp", "uid": "d"}]
        labels = {"app.kubernetes.io/part-of": "local-volume-provisioner"}
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "x"}]}
        body = {"metadata": {"labels": labels, "ownerReferences": owners}, "spec": spec}
        self._make(PODS, name, body, "default")
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._status(PODS, name, ready, "default")

    def volume(self, name: str, node: str, *, gib: int = 10, claim: str = "") -> None:
        expression = {"key": HOSTNAME, "operator": "In", "values": [node]}
        spec: dict[str, Any] = {
            "capacity": {"storage": f"{gib}Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "local": {"path": f"/mnt/fast/{name}"},
            "persistentVolumeReclaimPolicy": "Delete",
            "nodeAffinity": {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            },
        }
        if claim:
            spec["claimRef"] = {"namespace": "shop", "name": claim, "uid": f"uid-{claim}"}
        self._make(PERSISTENT_VOLUMES, name, {"spec": spec}, labels={NODE: node})
        self._status(PERSISTENT_VOLUMES, name, {"phase": "Bound" if claim else "Available"})

    def annotate(self, name: str, **annotations: str) -> None:
        """Set annotations of a volume; `health` is that of our agents."""
        named = {HEALTH if key == "health" else key: text for key, text in annotations.items()}

        def change(body: Body) -> dict[str, Any]:
            meta = dict(body["metadata"])
            meta["annotations"] = {**meta.get("annotations", {}), **named}
            return {**body, "metadata": meta}

        self.api.modify(PERSISTENT_VOLUMES, name, change)

    def waiting_claim(self, name: str, message: str, reason: str = "Said") -> None:
        """A claim that nobody serves, and an Event about it, as a tenant can write one."""
        spec = {
            "storageClassName": "fast",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "500Gi"}},
        }
        made = self._make(CLAIMS, name, {"spec": spec}, "default")
        about = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name}
        event = {
            "involvedObject": {**about, "uid": made["metadata"]["uid"]},
            "reason": reason,
            "message": message,
            "type": "Warning",
            "lastTimestamp": made["metadata"]["creationTimestamp"],
        }
        self._make(EVENTS, f"{name}.said", event, "default")

    def _make(
        self, kind: Resource, name: str, body: dict[str, Any], namespace: str = "", **meta: Any
    ) -> Body:
        metadata = {**body.get("metadata", {}), "name": name, **meta}
        return self.api.create(kind, {**body, "metadata": metadata}, namespace)

    def _status(
        self, kind: Resource, name: str, status: dict[str, Any], namespace: str = ""
    ) -> None:
        def change(body: Body) -> dict[str, Any]:
            return {**body, "status": status}

        self.api.modify(kind, name, change, namespace, subresource="status")


@contextlib.asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[tuple[Sandbox, Cluster, Path]]:
    """A sandbox without controllers, what fills it, and a kubeconfig for it."""
    async with Sandbox(controllers=False) as sandbox:
        yield sandbox, Cluster(sandbox.api), sandbox.kubeconfig(directory / "kubeconfig")


async def said(*words: str) -> bytes:
    """What the command localvolume prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "localvolume", *words, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out


@contextlib.asynccontextmanager
async def ui(kubeconfig: Path, *more: str) -> AsyncIterator[str]:
    """`localvolume ui`; yields the address that it prints."""
    words = ("ui", "--kubeconfig", str(kubeconfig), "--every", "1", *more)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "localvolume", *words, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        first, address = (await process.stdout.readline()).decode().split()
        assert first == "Open"
        yield address
    finally:
        process.terminate()
        await process.communicate()
    assert process.returncode == 0


@dataclass
class Seen:
    """A page, what it asked for and what it complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    async def tile(self, title: str) -> str:
        return await self.page.locator(
            f"#tiles > div:has(dt:text-is('{title}')) .figure"
        ).inner_text()

    async def text(self, selector: str) -> str:
        return await self.page.locator(selector).inner_text()

    async def shot(self, name: str) -> None:
        """For people to look at."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    async def whole(self, name: str) -> None:
        """All of it, also what is below the window."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    async def overhang(self) -> int:
        """By how many pixels the page is wider than its window."""
        found: int = await self.page.evaluate(
            "document.documentElement.scrollWidth - window.innerWidth"
        )
        return found


@contextlib.asynccontextmanager
async def browser(window: ViewportSize = DESKTOP, scheme: str = "light") -> AsyncIterator[Seen]:
    """A page of a real Chromium."""
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        context = await chromium.new_context(
            viewport=window, color_scheme="dark" if scheme == "dark" else "light"
        )
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        seen = Seen(page)
        page.on("request", lambda request: seen.requests.append(request.url))
        page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        page.on("console", lambda message: seen.complaints.append(message.text))
        try:
            yield seen
        finally:
            await chromium.close()
