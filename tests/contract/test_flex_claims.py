"""A FlexVolume's claim is gone when the API server says so, and not by any other 404: until then
neither the agent nor the controller lets go of its PersistentVolume."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.controller.caches.trimmed import VOLUMES
from localvolume.controller.flexvolume import FlexActs
from localvolume.controller.metrics import ControllerMetrics
from localvolume.flexvolume.binding import Binding
from localvolume.flexvolume.drivers.empty import EmptyDriver
from localvolume.flexvolume.keeping import Keeping
from localvolume.flexvolume.metrics import FlexMetrics
from localvolume.flexvolume.plan.provision import Keep
from localvolume.flexvolume.plan.release import Delete
from localvolume.flexvolume.turns import Turns
from localvolume.host.process.workers import Workers
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.errors import NotThere
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import NODES, PERSISTENT_VOLUMES
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts
from localvolume_lab.sandbox.sandbox import Sandbox

NODE = "node-1"

Api = tuple[Sandbox, Client]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """A Released PersistentVolume with our finalizer; its claim is not there."""
    async with Sandbox(controllers=False) as sandbox:
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test") as client:
            metadata: dict[str, Any] = {
                "name": "pvc-1",
                "labels": {marks.NODE_LABEL: NODE},
                "finalizers": [marks.FINALIZER],
            }
            spec = {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete",
                "flexVolume": {"driver": marks.FLEX_DRIVER},
                "claimRef": {"namespace": "ns", "name": "claim", "uid": "c-1"},
            }
            await client.create(PERSISTENT_VOLUMES, {"metadata": metadata, "spec": spec})
            released = MergePatch({"status": {"phase": "Released"}})
            await client.patch(PERSISTENT_VOLUMES, "pvc-1", released, subresource="status")
            yield sandbox, client


def proxys_404(sandbox: Sandbox) -> None:
    sandbox.faults.answer(
        404, verb="get", resource="persistentvolumeclaims", reason="PageNotFound", times=None
    )


async def test_the_agent_does_not_let_go(api: Api) -> None:
    sandbox, client = api
    workers = Workers()
    keeping = Keeping(
        client=client,
        events=EventRecorder(client, "test", NODE),
        workers=workers,
        config=FlexVolumeConfig(driver="empty"),
        driver=EmptyDriver(),
        turns=Turns(workers),
        binding=Binding(client, NODE, lambda: client.get(NODES, NODE), lambda _: None),
        metrics=FlexMetrics(CollectorRegistry()),
        node_name=NODE,
        saw_volume=lambda _: None,
        saw_claim=lambda _: None,
    )
    live = await client.get(PERSISTENT_VOLUMES, "pvc-1")
    await client.delete(PERSISTENT_VOLUMES, "pvc-1", uid=live.metadata.uid)

    async def finalizers_after_a_look() -> tuple[str, ...]:
        volume = await client.get(PERSISTENT_VOLUMES, "pvc-1")
        await keeping.look(NodeFacts(NODE, "", NODE, {}), {"pvc-1": volume}, {})
        return (await client.get(PERSISTENT_VOLUMES, "pvc-1")).metadata.finalizers

    proxys_404(sandbox)
    assert marks.FINALIZER in await finalizers_after_a_look()
    sandbox.faults.clear()
    assert marks.FINALIZER not in await finalizers_after_a_look()


async def test_the_controller_does_not_delete_it(api: Api) -> None:
    sandbox, client = api
    volume = await client.get(VOLUMES, "pvc-1")
    action = Delete("its claim is gone", volume, secure=False)
    acts = FlexActs(
        client=client,
        events=EventRecorder(client, "test", NODE),
        metrics=ControllerMetrics(),
        claim_again=lambda _: Keep("it is not asked"),
        volume_again=lambda _, claim: action if claim is None else Keep("its claim is still there"),
        saw=lambda _: None,
        cannot=lambda _: None,
    )
    proxys_404(sandbox)
    with pytest.raises(NotThere):
        await acts.do(action)
    assert (await client.get(VOLUMES, "pvc-1")).metadata.deletion_timestamp is None
    sandbox.faults.clear()
    await acts.do(action)
    assert (await client.get(VOLUMES, "pvc-1")).metadata.deletion_timestamp is not None
