"""What contents of snapshots say is compared once for each burst of changes, as the first list is:
each comparison reads all of them."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client import CollectorRegistry

from localvolume.config.model import Configuration
from localvolume.dynamic.capacityrole import CapacityRole
from localvolume.dynamic.metrics import DynamicMetrics
from localvolume.dynamic.model import Told
from localvolume.dynamic.paces import DynamicPaces
from localvolume.dynamic.role import DynamicRole
from localvolume.dynamic.throttling.act import throttle_for
from localvolume.host.process.workers import Workers
from localvolume.kube.client import Client
from localvolume.kube.ending import ended
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import (
    CLAIMS,
    NODES,
    PERSISTENT_VOLUMES,
    SNAPSHOT_CONTENTS,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
)
from localvolume.kube.ownpod import OwnPod
from localvolume.volumes.periods import Clock
from tests.suite.names import CSI
from tests.suite.until import until_async

COUNT = 20


class Contents:
    """The contents of a node as its role keeps them, and how often they were all read."""

    def __init__(self, client: Client) -> None:
        self.changes = 0
        self.read: list[int] = []
        self.informer = Informer(client, SNAPSHOT_CONTENTS, on_change=self.changed)
        self.role = role(client, self)

    def changed(self, *_: object) -> None:
        self.changes += 1
        self.role.told_changed()

    def told(self) -> Told:
        self.read.append(len(self.informer.items))
        return Told(handles={name: name for name in self.informer.items})


def ignored(*_: object) -> None:
    """Nobody looks at other objects here."""


def role(client: Client, contents: Contents) -> DynamicRole:
    workers, events = Workers(), EventRecorder(client, "test", "node-1")
    capacities = Informer(client, STORAGE_CAPACITIES, on_change=ignored)
    return DynamicRole(
        client=client,
        events=events,
        workers=workers,
        metrics=DynamicMetrics(CollectorRegistry()),
        volumes=Informer(client, PERSISTENT_VOLUMES, on_change=ignored),
        claims=Informer(client, CLAIMS, on_change=ignored),
        storage_classes=Informer(client, STORAGE_CLASSES, on_change=ignored),
        nodes=Informer(client, NODES, on_change=ignored),
        capacities=CapacityRole(client, capacities, "default"),
        own_pod=OwnPod(client, "default", ""),
        node_name="node-1",
        configuration=Configuration(),
        paces=DynamicPaces(),
        clock=Clock(),
        on_known=ignored,
        throttle=throttle_for("", None),
        told=contents.told,
        driver=True,
    )


def content(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotContent",
        "metadata": {"name": name},
        "spec": {
            "driver": CSI,
            "deletionPolicy": "Retain",
            "source": {"snapshotHandle": name},
            "volumeSnapshotRef": {"name": name, "namespace": "default"},
        },
    }


async def test_a_burst_of_changes_takes_one_comparison(client: Client) -> None:
    for number in range(COUNT):
        await client.create(SNAPSHOT_CONTENTS, content(f"cut-{number}"))
    contents = Contents(client)
    running = asyncio.create_task(contents.informer.run())
    try:
        await until_async(lambda: bool(contents.read))
        assert contents.changes == COUNT
        assert contents.read == [COUNT], "once, and after the last of them"
        # What changes later is compared as well.
        uid = contents.informer.items["cut-0"].metadata.uid
        await client.delete(SNAPSHOT_CONTENTS, "cut-0", uid=uid)
        await until_async(lambda: contents.read, lambda read: read[-1] == COUNT - 1)
        assert contents.changes == COUNT + 1
    finally:
        await ended(running)
