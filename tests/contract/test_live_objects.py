"""What is asked again right before a volume is cleaned, removed or seen to as lost: its object.

In the sandbox without controllers, where an object can be made again while nobody watches it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localvolume.cleaning.receipt import CleaningRefused
from localvolume.controller.model import Keep
from localvolume.controller.volumes import preconditions
from localvolume.dynamic.calls import NotNow
from localvolume.dynamic.preconditions import Live
from localvolume.dynamic.preconditions import Superseded as NotToBeRemoved
from localvolume.host.process.workers import Workers
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume
from localvolume.static.facts.survey import Survey
from localvolume.static.model import Entry
from localvolume.static.preconditions import Confirm, Superseded
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.marks import (
    CLAIMED_ANNOTATION,
    FINALIZER,
    GENERATION_ANNOTATION,
    HOSTNAME_LABEL,
)
from localvolume_lab.sandbox import Sandbox
from localvolume_lab.sandbox.kinds import PERSISTENT_VOLUMES as VOLUMES
from tests.host.support_pools import wish
from tests.suite.names import CSI

#: Keeps the object there once ours is gone.
OTHERS = "example.com/theirs"


async def _made(
    client: Client, *, going: bool = True, hostname: str = "node-1"
) -> PersistentVolume:
    its = {"key": HOSTNAME_LABEL, "operator": "In", "values": [hostname]}
    body = {
        "metadata": {
            "name": "local-pv-1",
            "finalizers": [FINALIZER, OTHERS],
            "annotations": {CLAIMED_ANNOTATION: "its-claim"},
        },
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "local",
            "local": {"path": "/mnt/one"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [its]}]}},
        },
    }
    made = await client.create(PERSISTENT_VOLUMES, body)
    if going:
        await client.delete(PERSISTENT_VOLUMES, "local-pv-1", uid=made.metadata.uid)
    return await client.get(PERSISTENT_VOLUMES, "local-pv-1")


async def _finalizers(client: Client, *names: str) -> None:
    patch = MergePatch({"metadata": {"finalizers": list(names)}})
    await client.patch(PERSISTENT_VOLUMES, "local-pv-1", patch)


async def _phase(client: Client, phase: str) -> None:
    patch = MergePatch({"status": {"phase": phase}})
    await client.patch(PERSISTENT_VOLUMES, "local-pv-1", patch, subresource="status")


@pytest.fixture
def confirm(client: Client) -> Iterator[Confirm]:
    workers = Workers()
    yield Confirm(client, Survey(workers), workers, lambda _: None)
    workers.close()


async def test_what_is_going_and_nobodys_is_to_be_cleaned(client: Client, confirm: Confirm) -> None:
    volume = await _made(client)
    assert await confirm.still_to_be_cleaned(volume) == volume


async def test_what_is_not_going_is_not_cleaned(client: Client, confirm: Confirm) -> None:
    volume = await _made(client, going=False)
    with pytest.raises(Superseded, match="not to be cleaned"):
        await confirm.still_to_be_cleaned(volume)


async def test_what_a_claim_has_after_all_is_not_cleaned(client: Client, confirm: Confirm) -> None:
    volume = await _made(client)
    await _phase(client, "Bound")
    with pytest.raises(Superseded, match="not to be cleaned"):
        await confirm.still_to_be_cleaned(volume)


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"persistentVolumeReclaimPolicy": "Retain"}},
        {"metadata": {"annotations": {CLAIMED_ANNOTATION: None}}},
    ],
    ids=["retained", "never claimed"],
)
async def test_what_is_to_be_kept_after_all_is_not_cleaned(
    client: Client, confirm: Confirm, patch: dict[str, Any]
) -> None:
    volume = await _made(client)
    await client.patch(PERSISTENT_VOLUMES, "local-pv-1", MergePatch(patch))
    with pytest.raises(Superseded, match="not to be cleaned"):
        await confirm.still_to_be_cleaned(volume)


async def test_what_is_not_held_for_us_any_more_is_not_cleaned(
    client: Client, confirm: Confirm
) -> None:
    """Somebody took our finalizer away, so that the data stays."""
    volume = await _made(client)
    await _finalizers(client, OTHERS)
    with pytest.raises(Superseded, match="not to be cleaned"):
        await confirm.still_to_be_cleaned(volume)


async def test_an_object_that_was_made_again_is_another_one(
    client: Client, confirm: Confirm
) -> None:
    """To the agent that was to clean, and to the controller that was to delete."""
    volume = await _made(client)
    await _finalizers(client)
    await _made(client)
    with pytest.raises(Superseded, match="another object now"):
        await confirm.still_to_be_cleaned(volume)
    with pytest.raises(preconditions.Superseded, match="another object now"):
        await preconditions.look(client, Keep(volume, "it is looked at"))


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_what_no_node_can_be_called_says_nothing_of_nodes(client: Client, name: str) -> None:
    """Asked for, it would lead to something else than a node, and count as an answer."""
    volume = await _made(client, hostname=name)
    with pytest.raises(preconditions.Superseded, match="is no name of a node"):
        await preconditions.look(client, Keep(volume, "it is looked at"))


async def test_what_the_last_of_many_objects_names_is_not_cleaned(tmp_path: Path) -> None:
    """The API server tells of them page by page."""
    workers = Workers()
    async with Sandbox(controllers=False) as sandbox:
        for number in range(501):
            body = {
                "metadata": {"name": f"pv-{number:03}"},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "hostPath": {"path": f"/mnt/{number}"},
                },
            }
            sandbox.api.create(VOLUMES, body)
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test") as client:
            confirm = Confirm(client, Survey(workers), workers, lambda _: None)
            node = NodeFacts("node-1", "uid", "node-1")
            await confirm.named_by_none(Entry("", "free", "/seen/free", "/mnt/free"), node)
            for number in (0, 500):
                entry = Entry("", str(number), f"/seen/{number}", f"/mnt/{number}")
                with pytest.raises(CleaningRefused, match=f"pv-{number:03} names /mnt/{number}"):
                    await confirm.named_by_none(entry, node)
    workers.close()


# --- volumes that were made for a claim ---------------------------------------------------------


def _live(client: Client) -> Live:
    return Live(client, "node-1", lambda _: None, lambda _: False, unwanted_seconds=3.0)


async def test_what_is_going_may_go(client: Client) -> None:
    volume = await _made(client)
    assert await _live(client).to_be_retired(volume) == volume


async def test_an_object_that_was_made_again_is_not_the_one_that_went(client: Client) -> None:
    """It is being deleted too, and is for another claim's data."""
    volume = await _made(client)
    await _finalizers(client)
    await _made(client)
    with pytest.raises(NotToBeRemoved, match="another object now"):
        await _live(client).to_be_retired(volume)


async def test_an_object_that_is_gone(client: Client) -> None:
    volume = await _made(client)
    await _finalizers(client)
    with pytest.raises(NotToBeRemoved, match="local-pv-1 is gone"):
        await _live(client).to_be_retired(volume)


async def test_whose_it_is_is_asked_where_several_claims_had_it(client: Client) -> None:
    """Before a pod gets what is in it: the watch may lag behind an API server that was set back."""
    live, once = _live(client), wish("pvc-1", claim_uid="1")
    several = wish("pvc-1", claim_uid="1", given=("nobody", "9"), generation=2)
    await live.claim_may_have(once, None)
    with pytest.raises(NotNow, match="pvc-1 has no PersistentVolume that says whose it is"):
        await live.claim_may_have(several, None)
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": CSI, "volumeHandle": "pvc-1"},
        "claimRef": {"namespace": "ns", "name": "data", "uid": "9"},
    }
    meta = {"name": "pvc-1", "annotations": {GENERATION_ANNOTATION: "2"}}
    await client.create(PERSISTENT_VOLUMES, {"metadata": meta, "spec": spec})
    there = await client.get(PERSISTENT_VOLUMES, "pvc-1")
    await live.claim_may_have(several, None)
    for record, why in (
        (once, "has another claim is not noted"),
        (replace(several, given=("nobody", "8")), "has another claim is not noted"),
        (replace(several, generation=3), "is kept from its claim"),
    ):
        with pytest.raises(NotNow, match=f"pvc-1 {why}"):
            await live.claim_may_have(record, there)
    # One that was made anew: for the same claim, for another, and with an administrator's word.
    former = replace(several, volume_uid="former")
    await live.claim_may_have(former, there)
    with pytest.raises(NotNow, match="pvc-1 is kept from its claim: it is another object"):
        await live.claim_may_have(replace(former, given=("8",)), there)
    with pytest.raises(NotNow, match="pvc-1 has another claim is not noted"):
        await live.claim_may_have(replace(former, given=("8",), generation=1), there)


async def test_what_is_not_held_for_us_any_more_stays(client: Client) -> None:
    """Somebody took our finalizer away, so that the data is not removed."""
    volume = await _made(client)
    await _finalizers(client, OTHERS)
    with pytest.raises(NotToBeRemoved, match="not to be removed"):
        await _live(client).to_be_retired(volume)
