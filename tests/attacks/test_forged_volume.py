"""Who has another node's token makes a PersistentVolume by the name of a volume that lies here and
has none, for a claim of an accomplice: nothing of that volume is given to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.attacks.support_given import (
    SECRET,
    SIZE,
    give_away,
    of_accomplice,
    within,
    written,
)
from tests.chart.support_helm import render
from tests.cluster.support_accounts import Caller
from tests.cluster.support_dynamic import Claim, MadePool
from tests.cluster.support_groups import GROUP_CONTENTS, GROUPS, GroupLab, group_lab_for
from tests.cluster.support_objects import Objects
from tests.cluster.support_rights import TEMPLATES, Rights, of_labs, sample_spec
from tests.cluster.support_snapshots import BEING_CREATED, SNAPSHOTS, Content
from tests.suite.api import CLAIMS, VOLUMES
from tests.suite.names import CSI, NODE_LABEL, POOL, PROVISIONED_BY
from tests.suite.units import GIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs", "controlplane", "snapshots")


@pytest.fixture
def lab(objects: Objects, unique: str, tmp_path: Path, controller: object) -> Iterator[GroupLab]:
    with group_lab_for(objects, unique, tmp_path) as lab:
        yield lab


@pytest.fixture
def pool(lab: GroupLab) -> MadePool:
    return lab.image_pool()


@pytest.fixture
def thief(control_plane: ControlPlane, lab: GroupLab, tmp_path: Path) -> Iterator[Caller]:
    """Whoever has the token of another node; the agent here is confined likewise."""
    values = of_labs(tmp_path, {"csi": {"enabled": True}})
    manifests = render(values, release=f"{lab.unique}-f", namespace="default", only=TEMPLATES)
    with Rights(control_plane, manifests) as rights:
        rights.confine(lab)
        lab.objects.node(other(lab))
        yield rights.caller(other(lab))


def other(lab: GroupLab) -> str:
    return f"{lab.unique}-other"


def left_alone(lab: GroupLab) -> str:
    """The handle of a volume of which the API server knows nothing: it was set back."""
    lab.serve()
    claim = lab.claimed(size=SIZE)
    handle = written(lab, claim)
    lab.stop()
    lab.delete(claim)
    lab.remove(lab.made(claim, phase="Released"))
    lab.serve()
    return handle


def forged(lab: GroupLab, thief: Caller, handle: str, namespace: str = "default") -> Claim:
    """The accomplice's claim, bound to a volume of that handle that is said to be elsewhere."""
    cls = lab.storage_class("any", provisioner=CSI, waits=True)
    claim = of_accomplice(lab, cls, "claim-forged", namespace)
    meta = claim["metadata"]
    spec = sample_spec(
        other(lab),
        local=None,
        capacity={"storage": SIZE},
        storageClassName=cls,
        csi={"driver": CSI, "volumeHandle": handle},
        claimRef={"namespace": namespace, "name": meta["name"], "uid": meta["uid"]},
    )
    metadata = {
        "name": handle,
        "labels": {NODE_LABEL: other(lab)},
        "annotations": {PROVISIONED_BY: CSI, POOL: "fast/of-the-attacker"},
    }
    body = {"metadata": metadata, "spec": {key: one for key, one in spec.items() if one}}
    assert thief.refusal("POST", VOLUMES, body, really=True) == ""
    lab.until(
        lambda: lab.objects.get(f"{within(CLAIMS, namespace)}/{meta['name']}"),
        lambda found: found["status"]["phase"] == "Bound",
    )
    return claim


def test_no_snapshot_of_it_is_cut(lab: GroupLab, pool: MadePool, thief: Caller) -> None:
    handle = left_alone(lab)
    snapshot = lab.snapshot(forged(lab, thief, handle))
    lab.until(lambda: lab.content_of(snapshot), bool)
    # One that is asked for after it is cut.
    own = lab.claimed(size=SIZE)
    cut = lab.until_content(lab.snapshot(own), is_tidy)
    content = lab.content_of(snapshot)
    assert content is not None
    assert NODE_LABEL not in content["metadata"].get("annotations", {})
    there = [handle, lab.handle(own), cut["status"]["snapshotHandle"]]
    assert pool.records() == sorted(f"{one}.json" for one in there)


def test_no_snapshot_that_waited_is_cut_once_the_volume_is_another_tenants(
    lab: GroupLab, pool: MadePool
) -> None:
    """The content has its node's mark already, and nobody asks any more whose volume it is."""
    lab.serve()
    claim = lab.claimed(size=SIZE)
    handle = written(lab, claim)
    cls = lab.snapshot_class(parameters={"what": "ever"})
    snapshot = lab.snapshot(claim, cls)
    content = lab.failing(snapshot, "parameters that are not known: what")
    assert content["metadata"]["annotations"][NODE_LABEL] == lab.node
    give_away(lab, claim, handle, "kube-public")
    lab.change_class(cls, {"parameters": {"what": None}})
    lab.failing(snapshot, f"no claim of namespace default has volume {handle} any more")
    assert pool.records() == [f"{handle}.json"]
    # Nothing holds it.
    lab.take_away(snapshot)
    lab.until(lambda: lab.content_of(snapshot), lambda found: found is None)
    assert pool.records() == [f"{handle}.json"]


def is_tidy(content: Content) -> bool:
    ready: bool = content.get("status", {}).get("readyToUse", False)
    return ready and BEING_CREATED not in content["metadata"]["annotations"]


def test_nor_together_with_a_volume_of_the_accomplices_own(
    lab: GroupLab, pool: MadePool, thief: Caller
) -> None:
    handle = left_alone(lab)
    (own,) = lab.together(1)
    forged(lab, thief, handle)
    lab.group_failing(lab.group(), f"has no PersistentVolume of {handle}")
    assert pool.records() == sorted(f"{one}.json" for one in (handle, lab.handle(own)))


def test_it_is_not_cloned(lab: GroupLab, pool: MadePool, thief: Caller) -> None:
    handle = left_alone(lab)
    name = forged(lab, thief, handle)["metadata"]["name"]
    source = {"kind": "PersistentVolumeClaim", "name": name}
    clone = of_accomplice(lab, f"{lab.unique}-any", "clone", dataSource=source)
    lab.claim_event(clone, "ProvisioningFailed", f"is on node {other(lab)}")
    assert pool.records() == [f"{handle}.json"]


def test_no_clone_that_waited_is_made_once_the_volume_is_another_tenants(lab: GroupLab) -> None:
    """It was begun while its source was in use, and is tried again until nobody uses that."""
    pool = lab.csi_pool(backend="directory", fs_type="xfs", size=GIB, enforce="none")
    lab.serve()
    claim = lab.claimed(size=SIZE)
    handle = lab.handle(claim)
    place = lab.caller.use(handle)
    source = {"kind": "PersistentVolumeClaim", "name": claim["metadata"]["name"]}
    clone = of_accomplice(lab, claim["spec"]["storageClassName"], "clone", dataSource=source)
    lab.claim_event(clone, "ProvisioningFailed", "only cloned while nobody uses it")
    assert f"pvc-{clone['metadata']['uid']}.json" in pool.records()
    give_away(lab, claim, handle, "kube-public")
    (place / "file").write_text(SECRET)
    lab.caller.leave(handle)
    lab.claim_event(clone, "ProvisioningFailed", "does not exist")
    lab.until(pool.records, lambda names: names == [f"{handle}.json"])


def test_no_snapshot_of_a_group_is_given_that_another_node_tells_of(
    lab: GroupLab, pool: MadePool, thief: Caller
) -> None:
    """A volume is gone, and a group of snapshots of it is kept."""
    lab.serve()
    (victim,) = lab.together(1, app="victim")
    handle = written(lab, victim)
    told = lab.group_tidy(lab.group(app="victim"))["status"]
    cut = told["volumeSnapshotInfoList"][0]["snapshotHandle"]
    lab.delete(victim)
    lab.until(lambda: lab.volume(handle), lambda found: found is None)
    # Its record too, which stays while an object is of it, be it a forged one.
    lab.until(pool.records, lambda names: names == [f"{cut}.json"])
    tenant = "kube-public"
    claim = forged(lab, thief, handle, tenant)
    body = {
        "apiVersion": "groupsnapshot.storage.k8s.io/v1",
        "kind": "VolumeGroupSnapshot",
        "metadata": {"name": lab.unique},
        "spec": {
            "volumeGroupSnapshotClassName": lab.group_class(),
            "source": {"selector": {"matchLabels": {"app": f"{lab.unique}-db"}}},
        },
    }
    group = lab.plane.request("POST", within(GROUPS, tenant), body)
    content = lab.until_group_content(group, lambda one: one["spec"]["source"]["volumeHandles"])
    path = f"{GROUP_CONTENTS}/{content['metadata']['name']}"
    taken = {"metadata": {"annotations": {NODE_LABEL: other(lab)}}}
    assert thief.refusal("PATCH", path, taken, really=True) == ""
    # Of the group on this node.
    keys = ("volumeGroupSnapshotHandle", "readyToUse", "creationTime", "volumeSnapshotInfoList")
    lie = {"status": {key: told[key] for key in keys}}
    assert thief.refusal("PATCH", f"{path}/status", lie, really=True) == ""
    (snapshot,) = lab.until(
        lambda: [
            one
            for one in lab.objects.get(within(SNAPSHOTS, tenant))["items"]
            if one.get("status", {}).get("readyToUse")
        ],
        bool,
    )
    source = {
        "apiGroup": "snapshot.storage.k8s.io",
        "kind": "VolumeSnapshot",
        "name": snapshot["metadata"]["name"],
    }
    cls = claim["spec"]["storageClassName"]
    restored = of_accomplice(lab, cls, "restored", tenant, dataSource=source)
    lab.until(
        lambda: lab.objects.get(f"/api/v1/namespaces/{tenant}/events")["items"],
        lambda events: any(
            one["involvedObject"]["name"] == restored["metadata"]["name"]
            and "is said to be on no node yet" in one["message"]
            for one in events
        ),
    )
    assert pool.records() == [f"{cut}.json"]
