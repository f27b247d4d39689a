"""What the controller does about a FlexVolume claim or PersistentVolume rests on one more look.

What has become something else since it was judged is left to be judged again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from localvolume.controller.caches.trimmed import VOLUMES, KnownVolume
from localvolume.controller.flexvolume import FlexActs
from localvolume.controller.metrics import ControllerMetrics
from localvolume.controller.volumes.preconditions import Superseded
from localvolume.flexvolume.plan.provision import Action, Claim, Keep, Provision, Refuse
from localvolume.flexvolume.plan.release import Delete, Hold
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import CLAIMS, Kind
from localvolume.volumes import marks

BODY: dict[str, Any] = {
    "metadata": {"name": "pvc-1"},
    "spec": {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete",
        "flexVolume": {"driver": marks.FLEX_DRIVER},
    },
}


@dataclass
class Ground:
    """The acts, with what is decided anew about whatever they read."""

    client: Client
    claim_again: Callable[[Claim], Action] = lambda _: Keep("it is not asked")
    volume_again: Callable[[Any, Claim | None], Action] = lambda _, __: Keep("it is not asked")
    told: list[str] = field(default_factory=list)

    async def do(self, action: Provision | Delete) -> None:
        acts = FlexActs(
            client=self.client,
            events=EventRecorder(self.client, "test", "one"),
            metrics=ControllerMetrics(),
            claim_again=self.claim_again,
            volume_again=self.volume_again,
            saw=lambda _: None,
            cannot=lambda action: self.told.append(action.reason),
        )
        await acts.do(action)

    async def claim(self) -> Claim:
        spec = {
            "storageClassName": "flex",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        body = {"metadata": {"name": "data"}, "spec": spec}
        return await self.client.create(CLAIMS, body, "default")

    async def made_anew(self) -> Claim:
        """The claim as it was, in whose place there is another of its name."""
        before = await self.claim()
        await self.forget(before)
        await self.claim()
        return before

    async def forget(self, thing: Claim | KnownVolume) -> None:
        """Delete it, whoever would protect it."""
        meta = thing.metadata
        kind: Kind[Any] = CLAIMS if meta.namespace else VOLUMES
        await self.client.delete(kind, meta.name, meta.namespace or None, uid=meta.uid)
        nothing = MergePatch({"metadata": {"finalizers": None}})
        await self.client.patch(kind, meta.name, nothing, meta.namespace or None)

    async def names(self) -> list[str]:
        page = await self.client.list_page(VOLUMES)
        return [one.metadata.name for one in page.items]


@pytest.fixture
def ground(client: Client) -> Ground:
    return Ground(client)


def provision(claim: Claim) -> Provision:
    return Provision("it is due", claim, BODY)


async def test_a_claim_that_is_gone_gets_nothing(ground: Ground) -> None:
    claim = await ground.claim()
    await ground.forget(claim)
    await ground.do(provision(claim))
    assert await ground.names() == []


async def test_another_claim_of_the_name_gets_nothing_by_the_earlier_ones_step(
    ground: Ground,
) -> None:
    before = await ground.made_anew()
    ground.claim_again = provision
    with pytest.raises(Superseded, match="default/data is another object now"):
        await ground.do(provision(before))
    assert await ground.names() == []


async def test_a_claim_for_which_nothing_is_due_any_more(ground: Ground) -> None:
    claim = await ground.claim()
    ground.claim_again = lambda _: Keep("no node is selected for it yet")
    with pytest.raises(Superseded, match="default/data: no node is selected"):
        await ground.do(provision(claim))
    ground.claim_again = lambda whole: Refuse("it cannot be", whole)
    await ground.do(provision(claim))
    assert (ground.told, await ground.names()) == (["it cannot be"], [])


async def test_another_volume_of_the_name_is_not_deleted(ground: Ground) -> None:
    before = await ground.client.create(VOLUMES, BODY)
    await ground.forget(before)
    await ground.client.create(VOLUMES, BODY)
    action = Delete("its claim is gone", before, secure=False)
    ground.volume_again = lambda volume, _: Delete("its claim is gone", volume, secure=False)
    with pytest.raises(Superseded, match="pvc-1 is another object now"):
        await ground.do(action)
    assert await ground.names() == ["pvc-1"]


async def test_a_volume_that_is_held_meanwhile_is_not_deleted(ground: Ground) -> None:
    """It names no claim: there is none to be asked for."""
    asked: list[Claim | None] = []

    def again(volume: Any, claim: Claim | None) -> Action:
        asked.append(claim)
        return Hold("its node is lost", volume)

    volume = await ground.client.create(VOLUMES, BODY)
    ground.volume_again = again
    await ground.do(Delete("its claim is gone", volume, secure=False))
    assert (asked, ground.told) == ([None], ["its node is lost"])
    ground.volume_again = lambda _, __: Keep("its policy is Retain")
    with pytest.raises(Superseded, match="pvc-1: its policy is Retain"):
        await ground.do(Delete("its claim is gone", volume, secure=False))
    assert await ground.names() == ["pvc-1"]
