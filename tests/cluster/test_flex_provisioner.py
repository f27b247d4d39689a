"""FlexVolume claims from their making to their end, with the real scheduler and
kube-controller-manager."""

from __future__ import annotations

import json
import operator
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localvolume.volumes.marks import ELASTIC_FLEX_DRIVER, FLEX_DRIVER
from tests.cluster.support_controller import Ground, in_, term
from tests.cluster.support_flexclaims import ELASTIC_LABEL, Flex, Process, reasons
from tests.cluster.support_routing import Routing
from tests.faults.support_proxy import Order, Proxy
from tests.suite.api import CLAIMS, CLASSES, MERGE, NODES, PODS, VOLUMES
from tests.suite.names import FINALIZER, NODE_LABEL, PROVISIONED_BY, SELECTED

pytestmark = pytest.mark.needs("controlplane")

ELASTIC = [ELASTIC_FLEX_DRIVER]


@pytest.fixture
def flex(ground: Ground) -> Flex:
    return Flex(ground)


def held(proxy: Proxy, *verbs: str, resource: str = "persistentvolumes") -> Order:
    """Hold such requests of the controller back, also when it has given the first one up."""
    order = Order("hold", verbs, resource)
    proxy.orders.append(order)
    return order


# --- whole lives ---------------------------------------------------------------------------------


def test_immediate(ground: Ground, flex: Flex) -> None:
    """Bound to no node, as elastic's were; and gone with its claim while it was never mounted."""
    cls = flex.storage_class()
    ground.start(flex_drivers=ELASTIC)
    claim = flex.claim(cls, "123456789")
    volume = flex.bound(claim)
    spec, meta = volume["spec"], volume["metadata"]
    assert spec["flexVolume"] == {
        "driver": ELASTIC_FLEX_DRIVER,
        "options": {"sizeBytes": "123456789"},
    }
    assert spec["capacity"] == {"storage": "123456789"}
    assert spec["claimRef"]["uid"] == claim["metadata"]["uid"]
    assert spec["persistentVolumeReclaimPolicy"] == "Delete"
    assert spec["storageClassName"] == cls
    assert "nodeAffinity" not in spec
    assert meta["annotations"][PROVISIONED_BY] == ELASTIC_FLEX_DRIVER
    assert FINALIZER not in meta["finalizers"]
    for reason in ("Provisioning", "ProvisioningSucceeded"):
        assert ground.event(claim, reason)["type"] == "Normal"
    flex.drop(claim)
    ground.gone(volume)
    found = {"class": cls, "source": ""}
    name = "controller_persistentvolumeclaim_provision_total"
    assert ground.metric(name, **found) == 1
    deleted = "controller_persistentvolume_delete_total"
    ground.until(lambda: ground.metric(deleted, **{"class": cls}), lambda n: n == 1)
    assert reasons(ground.events(claim)) == {"Provisioning", "ProvisioningSucceeded"}


def test_immediate_and_mounted(ground: Ground, flex: Flex) -> None:
    """From its first mount on it is a node's: its claim says so, and its agent ends it."""
    node = ground.node()
    ground.start(flex_drivers=ELASTIC)
    claim = flex.claim(flex.storage_class())
    flex.bound(claim)
    flex.mounted(claim, node)
    ground.until(
        lambda: ground.get(CLAIMS, claim["metadata"]["name"]) or {},
        lambda found: found["metadata"].get("labels", {}).get(NODE_LABEL) == node,
    )
    flex.drop(claim)
    flex.being_deleted(claim)
    flex.let_go(claim)


@pytest.mark.parametrize("driver", [ELASTIC_FLEX_DRIVER, FLEX_DRIVER])
def test_where_the_first_pod_runs(ground: Ground, driver: str) -> None:
    flex = Flex(ground, driver)
    host = f"{ground.unique}-host"
    ground.node("other")
    node = ground.node("wanted", {"kubernetes.io/hostname": host})
    cls = flex.storage_class(late=True)
    ground.start(flex_drivers=ELASTIC)
    claim = flex.claim(cls)
    flex.settle()
    assert flex.volume_of(claim) is None
    pod = Routing(ground).pod(claim, host)
    meta = flex.bound(claim)["metadata"]
    spec = flex.bound(claim)["spec"]
    assert spec["nodeAffinity"] == {"required": {"nodeSelectorTerms": [term(in_(host))]}}
    assert spec["flexVolume"]["driver"] == driver
    wanted = {NODE_LABEL: node}
    if driver == ELASTIC_FLEX_DRIVER:
        wanted[ELASTIC_LABEL] = node
    assert meta["labels"] == wanted
    assert FINALIZER in meta["finalizers"]
    ground.until(
        lambda: ground.get(PODS, pod) or {},
        lambda found: found["spec"].get("nodeName") == node,
    )
    flex.drop_pod(pod)
    flex.drop(claim)
    flex.being_deleted(claim)
    flex.let_go(claim)


def test_what_the_class_says(ground: Ground) -> None:
    flex = Flex(ground, FLEX_DRIVER)
    parameters = {"fsType": "xfs", "mkfsOptions": "-m reflink=0", "onRemoval": "overwrite"}
    cls = flex.storage_class(
        parameters=parameters, mountOptions=["noatime"], reclaimPolicy="Retain"
    )
    ground.start()
    volume = flex.bound(flex.claim(cls, accessModes=["ReadWriteOncePod"]))
    assert volume["spec"]["flexVolume"] == {
        "driver": FLEX_DRIVER,
        "fsType": "xfs",
        "options": {
            "sizeBytes": str(1 << 30),
            "mkfsOptions": "-m reflink=0",
            "mountOptions": "noatime",
            "onRemoval": "overwrite",
        },
    }
    assert volume["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert "mountOptions" not in volume["spec"]


def test_elastics_name_is_not_served_unless_that_is_said(ground: Ground, flex: Flex) -> None:
    """Its own provisioner may be running still."""
    claim = flex.claim(flex.storage_class())
    ground.start()
    flex.settle()
    assert flex.volume_of(claim) is None
    assert not ground.events(claim)


def test_retain(ground: Ground, flex: Flex) -> None:
    cls = flex.storage_class(reclaimPolicy="Retain")
    ground.start(flex_drivers=ELASTIC)
    claim = flex.claim(cls)
    volume = flex.bound(claim)
    flex.drop(claim)
    ground.in_phase(flex.name_for(claim), "Released")
    flex.settle()
    found = ground.again(volume)
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]
    path = f"{VOLUMES}/{flex.name_for(claim)}"
    ground.patch(path, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
    ground.gone(volume)


@pytest.mark.parametrize(
    ("verbs", "resource"),
    [
        (["get"], "persistentvolumes"),
        (["get"], "persistentvolumeclaims"),
        (["patch", "delete"], "persistentvolumes"),
    ],
    ids=["before", "during", "after"],
)
@pytest.mark.parametrize("on_node", [False, True])
def test_retain_at_the_last_moment(
    ground: Ground, flex: Flex, proxy: Proxy, verbs: list[str], resource: str, on_node: bool
) -> None:
    """Before the last look, during it, and after it."""
    node = ground.node()
    cls = flex.storage_class()
    ground.start(flex_drivers=ELASTIC, kubeconfig=proxy.kubeconfig)
    claim = flex.claim(cls)
    volume = flex.bound(claim)
    if on_node:
        flex.mounted(claim, node)
        path = f"{VOLUMES}/{flex.name_for(claim)}"
        ground.patch(path, {"metadata": {"finalizers": ["kubernetes.io/pv-protection"]}})

    request = held(proxy, *verbs, resource=resource)
    flex.drop(claim)
    ground.until(lambda: request.met, bool)
    path = f"{VOLUMES}/{flex.name_for(claim)}"
    ground.patch(path, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    request.release()
    ground.until(lambda: request.answered, bool)
    flex.settle()
    found = ground.again(volume)
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]
    assert found["status"]["phase"] == "Released"


def test_a_claim_that_is_there_after_all(ground: Ground, flex: Flex) -> None:
    """Whatever phase somebody has written."""
    claim = flex.claim(flex.storage_class())
    ground.start(flex_drivers=ELASTIC)
    volume = flex.bound(claim)
    with ground.no_binder():
        path = f"{VOLUMES}/{flex.name_for(claim)}/status"

        def judged() -> bool:
            # Again and again: what the binder had sent before it was stopped may come later.
            ground.patch(path, {"status": {"phase": "Released"}})
            return ground.logged("its claim is still there")

        ground.until(judged, bool)
        found = ground.again(volume)
        assert found is not None
        assert "deletionTimestamp" not in found["metadata"]


# --- what is there already -----------------------------------------------------------------------


def foreign(ground: Ground, flex: Flex, claim: dict[str, Any]) -> dict[str, Any]:
    """Somebody's PersistentVolume that has the name of this claim's."""
    body = {
        "metadata": {"name": flex.name_for(claim)},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": f"{ground.unique}-none",
            "hostPath": {"path": "/nowhere"},
        },
    }
    made: dict[str, Any] = ground.plane.request("POST", VOLUMES, body)
    return made


def test_anothers_volume_has_the_name(ground: Ground, flex: Flex) -> None:
    claim = flex.claim(flex.storage_class())
    there = foreign(ground, flex, claim)
    ground.start(flex_drivers=ELASTIC)
    ground.event(claim, "ProvisioningFailed", "another PersistentVolume has the name")
    assert ground.again(there) is not None
    ground.plane.request("DELETE", f"{VOLUMES}/{flex.name_for(claim)}")
    volume = flex.bound(claim)
    assert volume["metadata"]["uid"] != there["metadata"]["uid"]


def test_anothers_volume_comes_first(ground: Ground, flex: Flex, proxy: Proxy) -> None:
    """Between the look and the creation."""
    cls = flex.storage_class()
    creation = held(proxy, "post")
    ground.start(flex_drivers=ELASTIC, kubeconfig=proxy.kubeconfig)
    claim = flex.claim(cls)
    ground.until(lambda: creation.met, bool)
    foreign(ground, flex, claim)
    creation.release()
    ground.event(claim, "ProvisioningFailed", "another PersistentVolume has the name")
    assert "ProvisioningSucceeded" not in reasons(ground.events(claim))
    volume = flex.volume_of(claim)
    assert volume is not None
    assert "flexVolume" not in volume["spec"]


def test_it_was_made_by_a_leader_that_is_gone(ground: Ground, flex: Flex, proxy: Proxy) -> None:
    """Whose request took its time."""
    cls = flex.storage_class()
    creation = held(proxy, "post")
    ground.start(flex_drivers=ELASTIC, kubeconfig=proxy.kubeconfig)
    claim = flex.claim(cls)
    ground.until(lambda: creation.body, bool)
    ground.plane.request("POST", VOLUMES, json.loads(creation.body))
    creation.release()
    flex.bound(claim)
    ground.event(claim, "ProvisioningSucceeded")
    assert "ProvisioningFailed" not in reasons(ground.events(claim))


def test_many_at_once(ground: Ground, flex: Flex) -> None:
    cls = flex.storage_class()
    ground.start(flex_drivers=ELASTIC)
    claims = [flex.claim(cls, f"{n + 1}Mi") for n in range(24)]
    for n, claim in enumerate(claims):
        volume = flex.bound(claim)
        assert volume["spec"]["flexVolume"]["options"] == {"sizeBytes": str((n + 1) << 20)}
        assert volume["spec"]["claimRef"]["name"] == claim["metadata"]["name"]
    for claim in claims:
        flex.drop(claim)
    for claim in claims:
        flex.gone(claim)


def test_killed_again_and_again(ground: Ground, flex: Flex, tmp_path: Path) -> None:
    """At whatever moment: in the end each claim has its one volume, and none stays after it."""
    kept, cls = flex.storage_class("kept", reclaimPolicy="Retain"), flex.storage_class()
    dice, claims, dropped = random.Random(5), list[dict[str, Any]](), set[str]()
    for moment in (0.0, 0.05, 0.2, 0.6):
        process = Process(ground, tmp_path)
        try:
            ground.until(process.leads, bool)
            claims += [flex.claim(kept if n % 8 == 0 else cls) for n in range(16)]
            time.sleep(moment)
            for claim in dice.sample(claims, 8):
                # One that was dropped before may go at any moment, or take its time.
                if claim["metadata"]["name"] not in dropped:
                    flex.drop(claim)
                    dropped.add(claim["metadata"]["name"])
            time.sleep(dice.random() / 5)
        finally:
            process.kill()
    # The last one is not to lose its lease, as it would if it had to wait for the machine.
    patient = ("--leader-elect-lease-duration=15s", "--leader-elect-renew-deadline=12s")
    process = Process(ground, tmp_path, *patient)
    try:
        ground.until(process.leads, bool)
        for claim in claims:
            if claim["metadata"]["name"] not in dropped:
                flex.bound(claim)
            elif claim["spec"]["storageClassName"] == cls:
                flex.gone(claim)
        names = {flex.name_for(claim) for claim in claims}
        there = ground.plane.request("GET", VOLUMES)["items"]
        ours = [one for one in there if one["spec"]["storageClassName"] in (kept, cls)]
        assert {one["metadata"]["name"] for one in ours} <= names
    finally:
        process.kill()
    ground.adopt(f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{ground.unique}")


# --- what is refused -----------------------------------------------------------------------------


def test_claims_that_are_refused(ground: Ground, flex: Flex) -> None:
    """Also for what the controller's caches do not keep of a claim."""
    cls = flex.storage_class()
    ground.start(flex_drivers=ELASTIC)
    source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}
    wrong = {
        "access mode ReadWriteMany": flex.claim(cls, accessModes=["ReadWriteMany"]),
        "access mode ReadOnlyMany": flex.claim(cls, accessModes=["ReadOnlyMany"]),
        "a pool with the backend lvm": flex.claim(cls, volumeMode="Block"),
        "only csi.localvolume.dev clones": flex.claim(cls, dataSource=source),
        "a claim with a selector": flex.claim(cls, selector={"matchLabels": {"a": "b"}}),
    }
    for text, claim in wrong.items():
        assert ground.event(claim, "ProvisioningFailed", text)["type"] == "Warning"
    flex.settle()
    for claim in wrong.values():
        assert flex.volume_of(claim) is None
        assert reasons(ground.events(claim)) == {"ProvisioningFailed"}
    failed = "controller_persistentvolumeclaim_provision_failed_total"
    assert ground.metric(failed, **{"class": cls, "source": ""}) == len(wrong)


def test_wrong_parameters(ground: Ground, flex: Flex) -> None:
    """Said once, and served when the class is made anew."""
    cls = flex.storage_class(parameters={"fstype": "xfs"})
    ground.start(flex_drivers=ELASTIC)
    claim = flex.claim(cls)
    said = ground.event(claim, "ProvisioningFailed", "parameter fstype is not known")
    assert "did you mean fsType?" in said["message"]
    assert flex.volume_of(claim) is None
    ground.plane.request("DELETE", f"{CLASSES}/{cls}")
    ground.event(claim, "ProvisioningFailed", f'"{cls}" not found')
    flex.storage_class(parameters={"fsType": "xfs"})
    assert flex.bound(claim)["spec"]["flexVolume"]["fsType"] == "xfs"
    for event in ground.events(claim):
        assert event.get("count", 1) == 1, "said again and again"


def test_topologies_of_a_class(ground: Ground, flex: Flex) -> None:
    inside, outside = ground.node("in", {"rack": "a"}), ground.node("out", {"rack": "b"})
    topologies = [{"matchLabelExpressions": [{"key": "rack", "values": ["a"]}]}]
    now = flex.storage_class("now", allowedTopologies=topologies)
    late = flex.storage_class("late", late=True, allowedTopologies=topologies)
    ground.start(flex_drivers=ELASTIC)
    claim = flex.claim(now)
    ground.event(claim, "ProvisioningFailed", "allowedTopologies need volumeBindingMode")
    wrong = flex.claim(late, node=outside)
    ground.event(wrong, "ProvisioningFailed", "is not in the class's allowedTopologies")
    right = flex.bound(flex.claim(late, node=inside))
    assert right["metadata"]["labels"][NODE_LABEL] == inside
    assert flex.volume_of(claim) is None
    assert flex.volume_of(wrong) is None


def test_a_selected_node_that_is_gone(ground: Ground, flex: Flex) -> None:
    cls = flex.storage_class(late=True)
    ground.start(flex_drivers=ELASTIC)
    claim = flex.claim(cls, node=f"{ground.unique}-gone")
    ground.event(claim, "ProvisioningFailed", "does not exist")
    ground.until(
        lambda: ground.get(CLAIMS, claim["metadata"]["name"]) or {},
        lambda found: SELECTED not in found["metadata"]["annotations"],
    )
    assert flex.volume_of(claim) is None


def test_a_node_whose_hostname_comes_later(ground: Ground, flex: Flex) -> None:
    node = ground.node("bare")
    ground.patch(f"{NODES}/{node}", {"metadata": {"labels": {"kubernetes.io/hostname": None}}})
    cls = flex.storage_class(late=True)
    ground.start(flex_drivers=ELASTIC)
    claim = flex.claim(cls, node=node)
    ground.event(claim, "ProvisioningFailed", "has no label kubernetes.io/hostname")
    ground.patch(f"{NODES}/{node}", {"metadata": {"labels": {"kubernetes.io/hostname": node}}})
    flex.bound(claim)


# --- elastic's volumes ---------------------------------------------------------------------------


def test_what_elastics_made_is_adopted_and_ended(ground: Ground, flex: Flex) -> None:
    """It gets our label, so that its agent knows it, and our finalizer before it is deleted."""
    node = ground.node()
    cls = flex.storage_class()
    ground.start(flex_drivers=ELASTIC)
    claim = flex.claim(cls)
    flex.bound(claim)
    flex.mounted(claim, node, by_elastic=True)
    ground.until(
        lambda: flex.volume_of(claim) or {},
        lambda found: found["metadata"]["labels"].get(NODE_LABEL) == node,
    )
    assert FINALIZER not in (flex.volume_of(claim) or {})["metadata"]["finalizers"]
    flex.drop(claim)
    flex.being_deleted(claim)
    flex.let_go(claim)


def test_what_cannot_be_adopted_stays(ground: Ground, flex: Flex) -> None:
    """No agent would ever remove its data."""
    node = ground.node("there")
    cls = flex.storage_class()
    ground.start(flex_drivers=ELASTIC)
    claim = flex.claim(cls)
    volume = flex.bound(claim)
    flex.mounted(claim, node, by_elastic=True, said=f"{ground.unique}-another")
    flex.settle()
    assert NODE_LABEL not in (flex.volume_of(claim) or {})["metadata"]["labels"]
    flex.drop(claim)
    flex.event(volume, "VolumeFailedDelete", "no agent can remove its data")
    found = ground.again(volume)
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]
    # It is to be kept for now; then it goes; then somebody keeps it for another claim.
    keep, let_go, empty = (
        {"spec": {"persistentVolumeReclaimPolicy": "Retain"}},
        {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
        {"spec": {"claimRef": None}},
    )
    path = f"{VOLUMES}/{volume['metadata']['name']}"

    def said() -> tuple[int, int]:
        """How often it was said that it is held, and that this is over."""
        times = {one["reason"]: int(one["count"]) for one in flex.events(volume)}
        return times.get("VolumeFailedDelete", 0), times.get("VolumePutRight", 0)

    before = (1, 0)
    for body, after in ((keep, (1, 1)), (let_go, (2, 1)), (empty, (2, 2))):
        assert said() == before
        ground.plane.request("PATCH", path, body, content_type=MERGE)
        ground.until(said, partial(operator.eq, after))
        before = after


# --- lost nodes ----------------------------------------------------------------------------------


def test_a_lost_nodes_volumes(ground: Ground, flex: Flex) -> None:
    """W-29: Reported; and where the class is listed, claim, object and finalizer go."""
    node = ground.node()
    listed, other = flex.storage_class(late=True), flex.storage_class("other", late=True)
    ground.start(listed, return_period=0.0, flex_drivers=ELASTIC)
    goes, stays = flex.claim(listed, node=node), flex.claim(other, node=node)
    for claim in (goes, stays):
        flex.bound(claim)
    ground.remove_node(node)
    ground.gone(goes)
    flex.gone(goes)
    kept = flex.volume_of(stays)
    assert kept is not None
    flex.event(kept, "ReferencedNodeDeleted", "otherwise its claim is deleted")
    flex.drop(stays)
    ground.in_phase(flex.name_for(stays), "Released")
    flex.settle()
    found = ground.again(kept)
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]
    ground.plane.create_node(node)
    flex.being_deleted(stays)


def test_nobodys_business(ground: Ground, flex: Flex) -> None:
    """Released PersistentVolumes with other drivers, or of other provisioners."""
    ground.start(flex_drivers=ELASTIC)
    others = []
    for by, driver in (
        ("example.com/other", ELASTIC_FLEX_DRIVER),
        (ELASTIC_FLEX_DRIVER, "example.com/other"),
        (ELASTIC_FLEX_DRIVER, FLEX_DRIVER),
    ):
        volume = ground.volume(
            labelled=False,
            finalized=False,
            provisioner=by,
            source={"flexVolume": {"driver": driver}},
            nodeAffinity=None,
        )
        others.append(ground.released(volume))
    flex.settle()
    for volume in others:
        found = ground.again(volume)
        assert found is not None
        assert "deletionTimestamp" not in found["metadata"]
        assert not [e for e in ground.events(volume) if e["reason"] == "VolumeFailedDelete"]
