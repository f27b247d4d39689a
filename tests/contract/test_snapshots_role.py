"""Snapshots that take hours, as full copies do: they hold up no other, and tell how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from localvolume.backends.model import Fill, lost
from localvolume.dynamic.calls import InUse, Volume, Wanted
from localvolume.dynamic.classes.reserves import Reserve
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.ending import ended
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import EVENTS, SNAPSHOT_CLASSES, SNAPSHOT_CONTENTS
from localvolume.kube.objects import ClaimRef, CSISource, Meta, PersistentVolume, PVSpec
from localvolume.kube.snapshotobjects import VolumeSnapshotContent
from localvolume.snapshots.contents import AT_A_TIME
from localvolume.snapshots.metrics import SnapshotMetrics
from localvolume.snapshots.paces import SnapshotPaces
from localvolume.snapshots.plan import FILLING
from localvolume.snapshots.role import SnapshotRole
from localvolume.volumes.capacity import MIB
from localvolume.volumes.marks import node_key
from localvolume.volumes.snapshots import BEING_CREATED, NODE_ANNOTATION, RESERVE_ANNOTATION
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
        self,
        name: str,
        source: str,
        *,
        full_copies: bool = False,
        reserve: Reserve | None = None,
        namespace: str = "",
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
    role: SnapshotRole
    objects: dict[str, PersistentVolume]

    async def offer(self, handle: str) -> None:
        """A content that somebody makes of what is there."""
        body: dict[str, Any] = {
            "apiVersion": API,
            "kind": "VolumeSnapshotContent",
            "metadata": {"name": "again"},
            "spec": {
                "driver": CSI,
                "deletionPolicy": "Retain",
                "source": {"snapshotHandle": handle},
                "volumeSnapshotRef": {"name": "again", "namespace": "default"},
            },
        }
        await self.client.create(SNAPSHOT_CONTENTS, body)

    async def ask(self, source: str, cls: str = "copies", **notes: str) -> None:
        await self.volumes.create(Wanted(name=source, size_bytes=MIB))
        csi = CSISource(driver=CSI, volume_handle=source)
        of_claim = ClaimRef(namespace="default", name=source)
        self.objects[source] = PersistentVolume(
            metadata=Meta(name=source), spec=PVSpec(csi=csi, claim_ref=of_claim)
        )
        body: dict[str, Any] = {
            "apiVersion": API,
            "kind": "VolumeSnapshotContent",
            "metadata": {"name": f"of-{source}", "annotations": notes},
            "spec": {
                "driver": CSI,
                "deletionPolicy": "Delete",
                "source": {"volumeHandle": source},
                "volumeSnapshotClassName": cls,
                "volumeSnapshotRef": {"name": source, "namespace": "default", "uid": source},
            },
        }
        await self.client.create(SNAPSHOT_CONTENTS, body)

    async def content(self, source: str) -> VolumeSnapshotContent:
        return await self.client.get(SNAPSHOT_CONTENTS, f"of-{source}")

    async def ready(self, source: str) -> bool:
        status = (await self.content(source)).status
        return status is not None and bool(status.ready_to_use)

    async def said(self) -> set[tuple[str, str, str]]:
        """Of each Event the kind and namespace of what it is about, and its reason."""
        events = (await self.client.list_page(EVENTS)).items
        return {
            (one.involved_object.kind, one.involved_object.namespace, one.reason) for one in events
        }

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
            named = {"metadata": {"name": "with-reserve"}, "parameters": {"snapshotReserve": "5%"}}
            await client.create(SNAPSHOT_CLASSES, cls | named)
            wrong = {"metadata": {"name": "wrong"}, "parameters": {"snapshotReserve": "lots"}}
            await client.create(SNAPSHOT_CLASSES, cls | wrong)
            volumes, registry = Slow(), CollectorRegistry()
            objects: dict[str, PersistentVolume] = {}
            events = EventRecorder(client, "test", "node-1")
            role = SnapshotRole(
                client=client,
                events=events,
                metrics=SnapshotMetrics(registry),
                volumes=volumes,
                on_change=lambda: None,
                objects=objects,
                groups=tuple,
                node_name="node-1",
                paces=PACES,
            )
            made = Setting(client, volumes, registry, role, objects)
            running = [asyncio.create_task(one) for one in (role.run(), events.run())]
            try:
                yield made
            finally:
                await ended(*running)
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
        # Written after the status.
        await until_async(
            lambda source=source: setting.content(source),  # type: ignore[misc]
            lambda content: BEING_CREATED not in content.metadata.annotations,
        )
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


async def test_one_that_was_begun_is_cut_though_its_class_is_wrong_by_now(setting: Setting) -> None:
    """Otherwise nobody could delete it."""
    notes = {NODE_ANNOTATION: node_key("node-1"), BEING_CREATED: "yes"}
    await setting.ask("begun", "wrong", **notes)
    await until_async(lambda: setting.ready("begun"), bool)
    await setting.ask("new", "wrong")
    await until_async(setting.failures, lambda count: count >= 1)
    assert not await setting.ready("new")


async def test_an_agent_that_ends_waits_for_no_snapshot(setting: Setting) -> None:
    """As what ends with it looks for."""
    await setting.ask("slow")
    await until_async(lambda: setting.volumes.waiting, lambda waiting: waiting == 1)
    await setting.ask("quick")
    await until_async(lambda: setting.ready("quick"), bool)


async def test_a_reserve_that_fills_and_is_lost_is_told(setting: Setting) -> None:
    """On the content, and in Events on the VolumeSnapshot too; each once."""
    await setting.ask("reserved", "with-reserve")
    await until_async(lambda: setting.ready("reserved"), bool)
    (record,) = setting.volumes.cut.values()
    assert (record.reserve_bytes, record.size_bytes) == (MIB, MIB)

    async def note() -> str | None:
        return (await setting.content("reserved")).metadata.annotations.get(RESERVE_ANNOTATION)

    setting.volumes.fills[record.name] = Fill(percent=81)
    setting.role.changed()
    await until_async(note, lambda text: text == FILLING)
    setting.volumes.fills[record.name] = Fill(percent=41)
    setting.role.changed()
    await until_async(note, lambda text: text is None)
    setting.volumes.fills[record.name] = Fill(percent=100, lost=True)
    setting.role.changed()
    await until_async(lambda: setting.ready("reserved"), lambda ready: not ready)
    status = (await setting.content("reserved")).status
    assert status is not None
    assert status.error is not None
    assert status.error.message == lost(record)
    assert setting.failures() == 0
    wanted = {
        (kind, namespace, reason)
        for kind, namespace in (("VolumeSnapshotContent", ""), ("VolumeSnapshot", "default"))
        for reason in ("SnapshotReserveFilling", "SnapshotLost")
    }
    await until_async(setting.said, lambda said: said == wanted)


async def test_nothing_is_told_as_ready_that_is_lost(setting: Setting) -> None:
    """Whoever offers it anew by its handle."""
    await setting.ask("reserved", "with-reserve")
    await until_async(lambda: setting.ready("reserved"), bool)
    (record,) = setting.volumes.cut.values()
    setting.volumes.fills[record.name] = Fill(percent=100, lost=True)
    await setting.offer(record.name)

    async def why() -> str:
        status = (await setting.client.get(SNAPSHOT_CONTENTS, "again")).status
        return ((status.error and status.error.message) or "") if status is not None else ""

    assert lost(record) in await until_async(why, bool)
    again = (await setting.client.get(SNAPSHOT_CONTENTS, "again")).status
    assert again is not None
    assert not again.ready_to_use
