"""What the controller does about lost nodes' volumes and about claims rests on one more look, and
what it finds gone, changed or unclear is left alone.

In the sandbox without controllers: only there an object and its phase can contradict each other for
as long as a test needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from localvolume.controller.caches.trimmed import VOLUMES, KnownVolume
from localvolume.controller.claims import RouteActs
from localvolume.controller.metrics import ControllerMetrics
from localvolume.controller.model import Action, DeleteClaim, DeleteVolume, LetGo, MarkLost, Policy
from localvolume.controller.plan.claims import Reschedule, Route
from localvolume.controller.plan.nodes import Nodes
from localvolume.controller.volumes.act import Acts, Refrained
from localvolume.controller.volumes.counting import Counting
from localvolume.controller.volumes.preconditions import look
from localvolume.controller.volumes.reporting import Reporter
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.errors import LookAgain
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import CLAIMS
from localvolume.volumes import marks
from localvolume.volumes.periods import Clock
from localvolume_lab.sandbox.sandbox import Sandbox

POLICY = Policy(delete_classes=frozenset({"fast"}), claim_delay=0.0, return_period=0.0)
LONG_AGO = "2026-01-01T00:00:00Z"


@dataclass
class Ground:
    sandbox: Sandbox
    client: Client
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)

    async def volume(self, *, phase: str, host: str = "gone", lost: bool = True) -> KnownVolume:
        term = {"key": marks.HOSTNAME_LABEL, "operator": "In", "values": [host]}
        notes = {marks.PROVISIONED_BY_ANNOTATION: "local-volume-provisioner-gone-1234"}
        if lost:
            notes[marks.LOST_ANNOTATION] = LONG_AGO
        body: dict[str, Any] = {
            "metadata": {
                "name": "local-pv-1",
                "annotations": notes,
                "finalizers": [marks.FINALIZER],
            },
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": "fast",
                "local": {"path": "/mnt/disks/one"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            },
        }
        await self.client.create(VOLUMES, body)
        patch = MergePatch({"status": {"phase": phase}})
        return await self.client.patch(VOLUMES, "local-pv-1", patch, subresource="status")

    async def forget(self, volume: KnownVolume) -> None:
        """Delete it, whoever would keep it."""
        await self.client.delete(VOLUMES, "local-pv-1", uid=volume.metadata.uid)
        nothing = MergePatch({"metadata": {"finalizers": None}})
        await self.client.patch(VOLUMES, "local-pv-1", nothing)

    async def do(self, action: Action) -> None:
        acts = Acts(
            client=self.client,
            reporter=Reporter(EventRecorder(self.client, "test", "one")),
            metrics=self.metrics,
            counting=Counting(POLICY, Clock(), self.client.clock),
            saw=lambda _: None,
        )
        self.sandbox.requests.clear()
        await acts.do(action)

    def writes(self) -> list[tuple[str, str]]:
        asked = self.sandbox.requests
        return [(one.verb, one.resource) for one in asked if one.verb not in ("get", "list")]


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with Sandbox(controllers=False) as sandbox:
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test") as client:
            yield Ground(sandbox, client)


async def test_of_what_is_gone_already_nothing_is_written(ground: Ground) -> None:
    volume = await ground.volume(phase="Available")
    await ground.forget(volume)
    for action in (
        MarkLost(volume, "its node is lost", "nothing follows"),
        DeleteClaim(volume, "its claim is deleted"),
        DeleteVolume(volume, "it is removed", abandons=False),
        LetGo(volume, "it is removed", abandons=False),
    ):
        await ground.do(action)
        assert ground.writes() == []


async def test_a_bound_volume_that_names_no_claim_costs_nobody_a_claim(ground: Ground) -> None:
    volume = await ground.volume(phase="Bound")
    with pytest.raises(Refrained, match="it is bound, and does not say to which claim"):
        await ground.do(DeleteClaim(volume, "its claim is deleted"))
    assert ground.writes() == []


async def test_a_volume_that_others_keep_writing_to_is_let_go_later(ground: Ground) -> None:
    """Its deletion has others take their finalizers away: a few times at once, and then in turn."""
    volume = await ground.volume(phase="Available")
    conflict = ground.sandbox.faults.answer(409, verb="patch", reason="Conflict", times=None)
    with pytest.raises(LookAgain):
        await ground.do(DeleteVolume(volume, "it is removed", abandons=False))
    assert conflict.hits == 3
    ground.sandbox.faults.clear()
    live = await ground.client.get(VOLUMES, "local-pv-1")
    assert marks.FINALIZER in live.metadata.finalizers
    await ground.do(LetGo(live, "it is removed", abandons=False))
    live = await ground.client.get(VOLUMES, "local-pv-1")
    assert marks.FINALIZER not in live.metadata.finalizers


async def test_a_host_that_no_label_can_name_is_asked_for_by_name_alone(ground: Ground) -> None:
    """It would spoil the selector, whose refusal would count as a node that is there."""
    volume = await ground.volume(phase="Available", host=f"n{'o' * 70}")
    ground.sandbox.requests.clear()
    found = await look(ground.client, DeleteVolume(volume, "it is removed", abandons=False))
    assert found is not None
    assert found.nodes.serving(found.volume) == ""
    asked = [(one.verb, one.name) for one in ground.sandbox.requests if one.resource == "nodes"]
    assert asked == [("get", f"n{'o' * 70}")]


async def test_a_selected_node_of_an_impossible_name_is_not_asked_for(ground: Ground) -> None:
    spec = {
        "storageClassName": "late",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    selected = {"volume.kubernetes.io/selected-node": "No_Node"}
    body = {"metadata": {"name": "data", "annotations": selected}, "spec": spec}
    claim = await ground.client.create(CLAIMS, body, "default")
    action = Reschedule(claim, "there is no node No_Node", "No_Node")
    told: list[str] = []
    seen: list[Nodes] = []

    def again(_: object, nodes: Nodes) -> Reschedule:
        seen.append(nodes)
        return action

    acts = RouteActs(
        client=ground.client,
        metrics=ground.metrics,
        again=again,
        saw=lambda _: None,
        told=lambda done: told.append(done.node),
    )
    ground.sandbox.requests.clear()
    await acts.do(action)
    asked = [(one.verb, one.resource) for one in ground.sandbox.requests]
    assert asked == [("patch", "persistentvolumeclaims")]
    assert (told, seen[0].by_name("No_Node")) == (["No_Node"], None)
    live = await ground.client.get(CLAIMS, "data", "default")
    assert "volume.kubernetes.io/selected-node" not in live.metadata.annotations
    # Nor is one that must be gone before the claim is routed elsewhere.
    await acts.do(Route(live, "it is there", "node-2", gone="No_Node"))
    assert (await ground.client.get(CLAIMS, "data", "default")).metadata.labels == {
        marks.NODE_LABEL: "node-2"
    }
