"""Snapshots that take hours, as full copies do: they hold up no other, and tell how they end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from localvolume.dynamic.calls import InUse, Volume, Wanted
from localvolume.dynamic.classes.reserves import Reserve
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import SNAPSHOT_CLASSES, SNAPSHOT_CONTENTS
from localvolume.kube.snapshotobjects import VolumeSnapshotContent
from localvolume.snapshots.contents import AT_A_TIME
from localvolume.snapshots.metrics import SnapshotMetrics
from localvolume.snapshots.paces import SnapshotPaces
from localvolume.snapshots.role import SnapshotRole
from localvolume.volumes.capacity import MIB
from localvolume.volumes.snapshots import BEING_CREATED
from localvolume_lab.sandbox.sandbox import Sandbox
from tests.host.support_csi_controller import Records
from tests.suite.names import CSI
from tests.suite.until import until_async

API = "snapshot.storage.k8s.io/v1"
PACES = SnapshotPaces(cut=0.05, first_wait=0.01, longest_wait=0.1)


class Slow(Records):
    """Snapshots of volumes `slow-…` are cut once they `may`; each is cut once, as calls join."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()
        self.begun: list[str] = []
        self.waiting = 0
        self.failure: Exception | None = None

    async def snapshot(
        self, name: str, source: str, *, full_copies: bool = False, reserve: Reserve | None = None
    ) -> Volume:
        if source.startswith("slow") and name not in self.cut:
            self.begun.append(source)
            self.waiting += 1
            try:
                await self.may.wait()
            finally:
                self.waiting -= 1
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure
        return await super().snapshot(name, source, full_copies=full_copies, reserve=reserve)


@dataclass
class Setting:
    client: Client
    volumes: Slow
    registry: CollectorRegistry

    async def ask(self, source: str) -> None:
        await self.volumes.create(Wanted(name=source, size_bytes=MIB))
        body: dict[str, Any] = {
            "apiVersion": API,
            "kind": "VolumeSnapshotContent",
            "metadata": {"name": f"of-{source}"},
            "spec": {
                "driver": CSI,
                "deletionPolicy": "Delete",
                "source": {"volumeHandle": source},
                "volumeSnapshotClassName": "copies",
                "volumeSnapshotRef": {"name": source, "namespace": "default", "uid": source},
            },
        }
        await self.client.create(SNAPSHOT_CONTENTS, body)

    async def content(self, source: str) -> VolumeSnapshotContent:
        return await self.client.get(SNAPSHOT_CONTENTS, f"of-{source}")

    async def ready(self, source: str) -> bool:
        status = (await self.content(source)).status
        return status is not None and bool(status.ready_to_use)

    def failures(self) -> float:
        labels = {"operation": "cut"}
        return self.registry.get_sample_value("localvolume_snapshot_failures_total", labels) or 0


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    async with Sandbox(controllers=False) as sandbox:
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test") as client:
            cls = {
                "apiVersion": API,
                "kind": "VolumeSnapshotClass",
                "metadata": {"name": "copies"},
                "driver": CSI,
                "deletionPolicy": "Delete",
            }
            await client.create(SNAPSHOT_CLASSES, cls)
            made = Setting(client, Slow(), CollectorRegistry())
            role = SnapshotRole(
                client=client,
                events=EventRecorder(client, "test", "node-1"),
                metrics=SnapshotMetrics(made.registry),
                volumes=made.volumes,
                on_change=lambda: None,
                objects={},
                node_name="node-1",
                paces=PACES,
            )
            running = asyncio.create_task(role.run())
            try:
                yield made
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
                assert made.volumes.waiting == 0, "it leaves nothing behind"


async def test_slow_ones_hold_up_no_other(setting: Setting) -> None:
    slow = [f"slow-{number}" for number in range(AT_A_TIME)]
    for source in slow:
        await setting.ask(source)
    await until_async(lambda: len(setting.volumes.begun), lambda begun: begun == AT_A_TIME)
    await setting.ask("quick")
    await until_async(lambda: setting.ready("quick"), bool)
    for source in slow:
        content = await setting.content(source)
        # Nothing failed, and whoever deletes it waits for what is under way.
        assert content.metadata.annotations[BEING_CREATED] == "yes"
        assert content.status is None
    assert setting.failures() == 0
    setting.volumes.may.set()
    for source in slow:
        await until_async(lambda source=source: setting.ready(source), bool)  # type: ignore[misc]
        assert BEING_CREATED not in (await setting.content(source)).metadata.annotations
    # Each was asked for once, however many attempts there were.
    assert sorted(setting.volumes.begun) == slow


async def test_why_a_slow_one_failed_is_said_though_nobody_waited(setting: Setting) -> None:
    await setting.ask("slow")
    await setting.ask("quick")
    await until_async(lambda: setting.ready("quick"), bool)
    setting.volumes.failure = InUse("more was written than was set aside for that")
    setting.volumes.may.set()
    await until_async(setting.failures, lambda count: count == 1)
    await until_async(lambda: setting.ready("slow"), bool)
    status = (await setting.content("slow")).status
    assert status is not None
    assert status.error is None


async def test_an_agent_that_ends_waits_for_no_snapshot(setting: Setting) -> None:
    """As what ends with it looks for."""
    await setting.ask("slow")
    await until_async(lambda: setting.volumes.waiting, lambda waiting: waiting == 1)
    await setting.ask("quick")
    await until_async(lambda: setting.ready("quick"), bool)
