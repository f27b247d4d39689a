"""What is asked of the API server before a volume goes: phases and caches may be stale.

In the sandbox without controllers, as only there a claim and a phase can contradict each other for
as long as a test needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from localvolume.backends.model import Record
from localvolume.dynamic.paces import DynamicPaces
from localvolume.dynamic.plan.paths import is_surely_elsewhere
from localvolume.dynamic.preconditions import NAMED_SECONDS, Live, Superseded
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.marks import (
    FINALIZER,
    KEPT_ANNOTATION,
    NODE_LABEL,
    POOL_ANNOTATION,
    RELEASED_ANNOTATION,
)

NODE = "node-1"
UNWANTED_SECONDS = DynamicPaces().unwanted


async def _claim(client: Client, *, node: str = NODE) -> Any:
    body = {
        "metadata": {"name": "data", "labels": {NODE_LABEL: node}},
        "spec": {
            "storageClassName": "local",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    return await client.create(CLAIMS, body, "default")


async def _volume(
    client: Client,
    uid: str | None,
    *,
    phase: str = "Released",
    going: bool = False,
    host: str = NODE,
    **metadata: Any,
) -> PersistentVolume:
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "local",
        "local": {"path": "/pool/pvc-1"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
    }
    if uid is not None:
        spec["claimRef"] = {"namespace": "default", "name": "data", "uid": uid}
    body = {"metadata": {"name": "pvc-1", "finalizers": [FINALIZER], **metadata}, "spec": spec}
    made = await client.create(PERSISTENT_VOLUMES, body)
    patch = MergePatch({"status": {"phase": phase}})
    made = await client.patch(PERSISTENT_VOLUMES, "pvc-1", patch, subresource="status")
    if going:
        await client.delete(PERSISTENT_VOLUMES, "pvc-1", uid=made.metadata.uid)
    return await client.get(PERSISTENT_VOLUMES, "pvc-1")


def _live(client: Client, clock: Callable[[], float] = time.monotonic) -> Live:
    return Live(client, NODE, lambda _: None, _is_elsewhere, UNWANTED_SECONDS, clock)


def _is_elsewhere(volume: PersistentVolume) -> bool:
    here = NodeFacts(NODE, "uid", NODE, {"kubernetes.io/hostname": NODE})
    return is_surely_elsewhere(volume, here, {"id-of-ours"})


async def test_what_nobody_holds_may_go(client: Client) -> None:
    volume = await _volume(client, "an-earlier-claim")
    assert await _live(client).to_be_deleted(volume) == volume


async def test_a_claim_that_still_exists_keeps_its_volume(client: Client) -> None:
    claim = await _claim(client)
    volume = await _volume(client, claim.metadata.uid)
    with pytest.raises(Superseded, match="claim of pvc-1 is still there"):
        await _live(client).to_be_deleted(volume)


async def test_also_where_the_object_is_being_deleted(client: Client) -> None:
    claim = await _claim(client)
    volume = await _volume(client, claim.metadata.uid, going=True)
    with pytest.raises(Superseded, match="claim of pvc-1 is still there"):
        await _live(client).to_be_retired(volume)


@pytest.mark.parametrize("phase", ["Pending", "Available"])
async def test_a_claim_that_never_had_it_gets_another_one(client: Client, phase: str) -> None:
    claim = await _claim(client)
    volume = await _volume(client, claim.metadata.uid, phase=phase, going=True)
    assert await _live(client).to_be_retired(volume) == volume
    patch = MergePatch({"spec": {"volumeName": "pvc-1"}})
    await client.patch(CLAIMS, "data", patch, "default")
    with pytest.raises(Superseded, match="claim of pvc-1 is still there"):
        await _live(client).to_be_retired(volume)


async def test_a_phase_that_is_behind(client: Client) -> None:
    volume = await _volume(client, "an-earlier-claim", phase="Available", going=True)
    with pytest.raises(Superseded, match="does not say so yet"):
        await _live(client).to_be_retired(volume)


async def test_another_claim_of_that_name_keeps_nothing(client: Client) -> None:
    await _claim(client)
    volume = await _volume(client, "an-earlier-claim", going=True)
    assert await _live(client).to_be_retired(volume) == volume


async def test_a_volume_that_waits_for_its_claim_is_kept(client: Client) -> None:
    """As `localvolume undo` leaves it, before its phase is set."""
    volume = await _volume(client, None)
    with pytest.raises(Superseded, match="yet to come"):
        await _live(client).to_be_deleted(volume)


async def test_retain_at_the_last_moment_keeps_the_data(client: Client) -> None:
    """Whoever sees a volume go and wants it kept patches its policy: the plan was made before."""
    volume = await _volume(client, "an-earlier-claim", going=True)
    patch = MergePatch({"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    await client.patch(PERSISTENT_VOLUMES, "pvc-1", patch)
    with pytest.raises(Superseded, match="is not Delete any more"):
        await _live(client).to_be_retired(volume)


async def test_what_is_not_being_deleted_is_not_moved_away(client: Client) -> None:
    volume = await _volume(client, "an-earlier-claim")
    with pytest.raises(Superseded, match="not to be removed"):
        await _live(client).to_be_retired(volume)


@pytest.mark.parametrize("phase", ["Bound", "Available", "Failed"])
async def test_only_what_is_released_is_deleted(client: Client, phase: str) -> None:
    volume = await _volume(client, "an-earlier-claim", phase=phase)
    with pytest.raises(Superseded, match="not to be deleted"):
        await _live(client).to_be_deleted(volume)


@pytest.mark.parametrize("mark", [RELEASED_ANNOTATION, KEPT_ANNOTATION])
async def test_until_when_it_is_kept_may_have_changed(client: Client, mark: str) -> None:
    volume = await _volume(client, "an-earlier-claim")
    patch = MergePatch({"metadata": {"annotations": {mark: "2099-01-01T00:00:00Z x"}}})
    await client.patch(PERSISTENT_VOLUMES, "pvc-1", patch)
    with pytest.raises(Superseded, match="is kept has changed"):
        await _live(client).to_be_deleted(volume)


# --- volumes that nobody seems to want ---------------------------------------------------------


def _record(uid: str) -> Record:
    return Record(
        name="pvc-1",
        backend="directory",
        state="making",
        directory="pvc-1",
        size_bytes=1,
        claim="default/data",
        claim_uid=uid,
    )


async def _is_unwanted(client: Client, uid: str, *, after: float = UNWANTED_SECONDS) -> bool:
    """What two looks say, so many seconds apart."""
    now = 1000.0
    live = _live(client, lambda: now)
    await live.ask(_record(uid))
    assert live.unwanted()[0] == set()
    now += after
    await live.ask(_record(uid))
    return "pvc-1" in live.unwanted()[0]


async def test_no_claim_and_no_volume(client: Client) -> None:
    assert await _is_unwanted(client, "gone")


async def test_a_request_may_still_be_under_way(client: Client) -> None:
    assert not await _is_unwanted(client, "gone", after=UNWANTED_SECONDS - 1)


async def test_its_claim_is_there(client: Client) -> None:
    claim = await _claim(client)
    assert not await _is_unwanted(client, claim.metadata.uid)


async def test_its_claim_went_to_another_node(client: Client) -> None:
    claim = await _claim(client, node="node-2")
    assert await _is_unwanted(client, claim.metadata.uid)


async def test_its_volume_is_there(client: Client) -> None:
    await _volume(client, "gone")
    assert not await _is_unwanted(client, "gone")


OF_ANOTHER: dict[str, Any] = {
    "labels": {NODE_LABEL: "node-2"},
    "annotations": {POOL_ANNOTATION: "fast/id-of-theirs"},
    "host": "node-2",
}


async def test_its_volume_is_another_nodes(client: Client) -> None:
    """The node was away meanwhile: by this name nothing of it is ever published."""
    claim = await _claim(client, node="node-2")
    await _volume(client, claim.metadata.uid, phase="Bound", **OF_ANOTHER)
    assert await _is_unwanted(client, claim.metadata.uid)


@pytest.mark.parametrize(
    "here",
    [
        pytest.param({"labels": {NODE_LABEL: NODE}}, id="label"),
        pytest.param({"labels": {}}, id="no-label"),
        pytest.param({"annotations": {POOL_ANNOTATION: "fast/id-of-ours"}}, id="pool"),
        pytest.param({"annotations": {}}, id="no-pool"),
        pytest.param({"annotations": {POOL_ANNOTATION: "fast/"}}, id="pool-without-id"),
        pytest.param({"host": NODE}, id="affinity"),
    ],
)
async def test_its_volume_may_be_here(client: Client, here: dict[str, Any]) -> None:
    """Any one of the three may be wrong."""
    claim = await _claim(client, node="node-2")
    await _volume(client, claim.metadata.uid, phase="Bound", **(OF_ANOTHER | here))
    assert not await _is_unwanted(client, claim.metadata.uid)


async def test_another_nodes_volume_of_another_claim(client: Client) -> None:
    claim = await _claim(client, node="node-2")
    await _volume(client, "another", phase="Bound", **OF_ANOTHER)
    assert not await _is_unwanted(client, claim.metadata.uid)


async def test_a_volume_that_was_found_is_known_for_a_while(client: Client) -> None:
    now = 1000.0
    volume, live = await _volume(client, "gone"), _live(client, lambda: now)
    assert live.named() == set()
    await live.ask(_record("gone"))
    assert live.named() == {"pvc-1"}
    now += NAMED_SECONDS
    assert live.named() == set()
    await live.ask(_record("gone"))
    assert live.named() == {"pvc-1"}
    await client.delete(PERSISTENT_VOLUMES, "pvc-1", uid=volume.metadata.uid)
    await client.patch(PERSISTENT_VOLUMES, "pvc-1", MergePatch({"metadata": {"finalizers": None}}))
    await live.ask(_record("gone"))
    assert live.named() == set()
