"""Removes from a cluster of the user's what the demo made there, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.errors import AccessInvalid, ApiError, NotThere
from localvolume.kube.kinds import (
    CLAIMS,
    EVENTS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    Kind,
)
from localvolume.kube.objects import KubeObject
from localvolume.volumes import marks
from localvolume.volumes.objects import is_finalized
from localvolume.volumes.patches import without_finalizer
from localvolume_lab.demo.cluster import Names

T = TypeVar("T", bound=KubeObject)

SWEEP_SECONDS = 60.0
"""How long a cluster may take to remove what it was asked to remove."""


def sweep_cluster(kubeconfig: str, name: str) -> str:
    """Remove everything of the demo called `name`; returns what could not be, "" for nothing.

    To be called when its agent has ended.
    """
    try:
        return asyncio.run(_sweep(kubeconfig, Names.unique(name)))
    except AccessInvalid as error:
        return f"nothing was removed from the cluster: {error}"


async def _sweep(kubeconfig: str, names: Names) -> str:
    left: list[str] = []
    async with Client(find_access(kubeconfig), user_agent="localvolume-demo") as client:
        deadline = time.monotonic() + SWEEP_SECONDS
        while time.monotonic() < deadline:
            left = await _once(client, names)
            if not left:
                return ""
            await asyncio.sleep(0.3)
    return f"still in the cluster after {SWEEP_SECONDS:.0f} s: {', '.join(left)}"


async def _once(client: Client, names: Names) -> list[str]:
    """Ask for the removal of all that is there; returns what was there, in words."""
    left: list[str] = []
    steps: list[Callable[[], Awaitable[list[str]]]] = [
        lambda: _claims(client, names),
        lambda: _volumes(client, names),
        lambda: _one(client, NAMESPACES, names.namespace),
        lambda: _classes(client, names),
        lambda: _one(client, NODES, names.node),
        lambda: _events(client, names),
    ]
    for step in steps:
        try:
            left += await step()
        except ApiError as error:
            left.append(str(error))
    return left


async def _claims(client: Client, names: Names) -> list[str]:
    page = await client.list_page(CLAIMS, names.namespace, limit=0)
    for claim in page.items:
        await _delete(client, CLAIMS, claim, names.namespace)
    return [f"claim {claim.metadata.name}" for claim in page.items]


async def _volumes(client: Client, names: Names) -> list[str]:
    selector = f"{marks.NODE_LABEL}={marks.node_key(names.node)}"
    page = await client.list_page(PERSISTENT_VOLUMES, label_selector=selector, limit=0)
    for volume in page.items:
        if volume.metadata.deletion_timestamp is None:
            await _delete(client, PERSISTENT_VOLUMES, volume)
        elif is_finalized(volume):
            # Its agent is gone, and so are the demo's disks: there is nothing left to clean.
            with contextlib.suppress(NotThere):
                patch = without_finalizer(volume)
                await client.patch(PERSISTENT_VOLUMES, volume.metadata.name, patch)
    return [f"persistentvolume {volume.metadata.name}" for volume in page.items]


async def _classes(client: Client, names: Names) -> list[str]:
    found = [await _one(client, STORAGE_CLASSES, name) for name in names.classes]
    return [words for one in found for words in one]


async def _events(client: Client, names: Names) -> list[str]:
    selector = "source=local-volume-provisioner"
    page = await client.list_page(EVENTS, "default", field_selector=selector, limit=0)
    ours = [event for event in page.items if event.source.host == names.node]
    for event in ours:
        await _delete(client, EVENTS, event, "default")
    return [f"event {event.metadata.name}" for event in ours]


async def _one(client: Client, kind: Kind[T], name: str) -> list[str]:
    try:
        found = await client.get(kind, name)
    except NotThere:
        return []
    if found.metadata.deletion_timestamp is None:
        await _delete(client, kind, found)
    return [f"{kind.kind.lower()} {name}"]


async def _delete(client: Client, kind: Kind[T], what: T, namespace: str | None = None) -> None:
    with contextlib.suppress(NotThere):
        await client.delete(kind, what.metadata.name, namespace, uid=what.metadata.uid)
