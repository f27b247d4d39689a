"""FlexVolume claims: whose they are, what is refused, and the PersistentVolume that is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import pytest

from localvolume.flexvolume.plan.provision import (
    Action,
    ClaimFacts,
    Keep,
    Provision,
    Refuse,
    judge_claim,
)
from localvolume.kube.objects import (
    ClaimRef,
    DataSource,
    FlexVolumeSource,
    LabelSelector,
    Meta,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    PVCSpec,
    PVSpec,
    Requests,
    StorageClass,
    TopologyRequirement,
    TopologyTerm,
)
from localvolume.volumes import marks
from tests.decisions.support_controller import node

S = TypeVar("S", bound=Action)

OURS = marks.FLEX_DRIVER
ELASTIC = marks.ELASTIC_FLEX_DRIVER
UID = "6f1c2c1a-0000-4000-8000-000000000001"
NAME = f"pvc-{UID}"
LATE = "WaitForFirstConsumer"


def claim(
    *,
    provisioner: str | None = ELASTIC,
    size: str | None = "1Gi",
    selected: str = "",
    modes: Sequence[str] = ("ReadWriteOnce",),
    deleted: bool = False,
    **spec: Any,
) -> PersistentVolumeClaim:
    notes = {
        "volume.kubernetes.io/storage-provisioner": provisioner,
        "volume.kubernetes.io/selected-node": selected or None,
    }
    return PersistentVolumeClaim(
        metadata=Meta(
            name="data",
            namespace="x",
            uid=UID,
            resource_version="5",
            annotations={key: value for key, value in notes.items() if value is not None},
            deletion_timestamp="2027-01-15T07:59:59Z" if deleted else None,
        ),
        spec=PVCSpec(
            storage_class_name="elastic-local",
            access_modes=tuple(modes),
            resources=Requests(requests={} if size is None else {"storage": size}),
            **spec,
        ),
    )


def storage_class(provisioner: str = ELASTIC, **fields: Any) -> StorageClass:
    fields.setdefault("volume_binding_mode", "Immediate")
    return StorageClass(metadata=Meta(name="elastic-local"), provisioner=provisioner, **fields)


def facts(
    of: StorageClass | None = None,
    *,
    served: Sequence[str] = (OURS, ELASTIC),
    there: PersistentVolume | None = None,
    on: Node | None = None,
    no_class: bool = False,
) -> ClaimFacts:
    found = None if no_class else of or storage_class()
    return ClaimFacts(served=frozenset(served), storage_class=found, there=there, node=on)


def a(kind: type[S], found: Action) -> S:
    assert isinstance(found, kind), found
    return found


def made(of: ClaimFacts | None = None, about: PersistentVolumeClaim | None = None) -> Any:
    return a(Provision, judge_claim(of or facts(), about or claim())).body


def refused(of: ClaimFacts | None = None, about: PersistentVolumeClaim | None = None) -> str:
    return a(Refuse, judge_claim(of or facts(), about or claim())).reason


def kept(of: ClaimFacts | None = None, about: PersistentVolumeClaim | None = None) -> str:
    return a(Keep, judge_claim(of or facts(), about or claim())).reason


# --- elastic's own unit tests, by their names ----------------------------------------------------


def test_pv_equals_expected_object() -> None:
    """provisioner: what elastic's made, and the few fields that the API server or we add.

    E-FV-01.
    """
    assert made() == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": NAME,
            "annotations": {"pv.kubernetes.io/provisioned-by": ELASTIC},
        },
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "elastic-local",
            "volumeMode": "Filesystem",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "x",
                "name": "data",
                "uid": UID,
                "resourceVersion": "5",
            },
            "flexVolume": {
                "driver": ELASTIC,
                "readOnly": False,
                "options": {"sizeBytes": "1073741824"},
            },
        },
    }


@pytest.mark.parametrize(
    ("size", "text"),
    [("1Gi", "1073741824"), ("10G", "10000000000"), ("123", "123"), ("1.5Ki", "1536")],
)
def test_protocol_size_to_string_map(size: str, text: str) -> None:
    """protocol: size -> string map; the capacity is what was asked for, letter for letter.

    E-FV-02.
    """
    body = made(about=claim(size=size))
    assert body["spec"]["flexVolume"]["options"] == {"sizeBytes": text}
    assert body["spec"]["capacity"] == {"storage": size}


# --- the object ----------------------------------------------------------------------------------


def test_our_own_name_is_the_driver_of_our_own_claims() -> None:
    body = made(facts(storage_class(OURS)), claim(provisioner=OURS))
    assert body["spec"]["flexVolume"]["driver"] == OURS
    assert body["metadata"]["annotations"] == {marks.PROVISIONED_BY_ANNOTATION: OURS}


def test_what_the_class_says_is_in_it() -> None:
    """Mount options as an option of the driver's: kubelet refuses `spec.mountOptions`."""
    body = made(
        facts(
            storage_class(
                reclaim_policy="Retain",
                mount_options=("noatime", "nodelalloc"),
                parameters={
                    "fsType": "ext4",
                    "mkfsOptions": "-i  65536",
                    "onRemoval": "discard",
                },
            )
        ),
        claim(modes=("ReadWriteOncePod",)),
    )
    spec = body["spec"]
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    assert spec["accessModes"] == ["ReadWriteOncePod"]
    assert "mountOptions" not in spec
    assert spec["flexVolume"] == {
        "driver": ELASTIC,
        "readOnly": False,
        "fsType": "ext4",
        "options": {
            "sizeBytes": "1073741824",
            "mkfsOptions": "-i 65536",
            "onRemoval": "discard",
            "mountOptions": "noatime,nodelalloc",
        },
    }


def test_immediate_is_bound_to_no_node() -> None:
    """Its first mount does that; until then no agent needs to hold it."""
    body = made()
    assert "nodeAffinity" not in body["spec"]
    assert body["metadata"].keys() == {"name", "annotations"}


@pytest.mark.parametrize("mode", [LATE, "Immediate"])
@pytest.mark.parametrize(
    ("provisioner", "labels"),
    [
        (ELASTIC, {marks.NODE_LABEL: "n1", marks.ELASTIC_NODE_LABEL: "n1"}),
        (OURS, {marks.NODE_LABEL: "n1"}),
    ],
)
def test_a_selected_node_is_in_it_from_the_beginning(
    mode: str, provisioner: str, labels: Mapping[str, str]
) -> None:
    of = facts(
        storage_class(provisioner, volume_binding_mode=mode), on=node("n1", hostname="host-1")
    )
    body = made(of, claim(provisioner=provisioner, selected="n1"))
    asked = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["host-1"]}
    assert body["spec"]["nodeAffinity"] == {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [asked]}]}
    }
    assert body["metadata"]["labels"] == labels
    assert body["metadata"]["finalizers"] == [marks.FINALIZER]


def test_a_name_of_a_node_that_is_no_label() -> None:
    name = "n" * 70
    of = facts(storage_class(volume_binding_mode=LATE), on=node(name, hostname="host-1"))
    body = made(of, claim(selected=name))
    assert body["metadata"]["labels"] == {marks.NODE_LABEL: marks.node_key(name)}


# --- whose it is ---------------------------------------------------------------------------------


def test_elastics_name_only_where_that_is_asked_for() -> None:
    assert kept(facts(served=[OURS])) == f"its provisioner is {ELASTIC}"
    made(facts(storage_class(OURS), served=[OURS]), claim(provisioner=OURS))


@pytest.mark.parametrize("provisioner", [None, "", "example.com/other", "dynamic.localvolume.dev"])
def test_other_provisioners(provisioner: str | None) -> None:
    assert kept(about=claim(provisioner=provisioner)).startswith("its provisioner is")


def test_bound_or_going() -> None:
    assert kept(about=claim(volume_name="pvc-1")) == "it has pvc-1"
    assert kept(about=claim(deleted=True)) == "the claim is being deleted"


def test_a_class_that_is_not_there_or_anothers() -> None:
    assert refused(facts(no_class=True)) == 'storageclass.storage.k8s.io "elastic-local" not found'
    assert kept(facts(storage_class(OURS))) == "its class elastic-local has another provisioner"
    # A claim that is bound, or not ours, is not told of it.
    assert kept(facts(no_class=True), claim(volume_name="pvc-1")) == "it has pvc-1"
    assert kept(facts(no_class=True), claim(provisioner="x")) == "its provisioner is x"


def volume(
    driver: str = ELASTIC, by: str = ELASTIC, uid: str = UID, *, flex: bool = True
) -> PersistentVolume:
    return PersistentVolume(
        metadata=Meta(name=NAME, annotations={marks.PROVISIONED_BY_ANNOTATION: by}),
        spec=PVSpec(
            flex_volume=FlexVolumeSource(driver=driver) if flex else None,
            claim_ref=ClaimRef(namespace="x", name="data", uid=uid),
        ),
    )


def test_what_is_made_is_made_once() -> None:
    assert kept(facts(there=volume())) == "its PersistentVolume exists"


@pytest.mark.parametrize(
    "there",
    [
        volume(uid="another"),
        volume(uid=""),
        volume(by=OURS),
        volume(driver=OURS),
        volume(driver=OURS, by=OURS),
        volume(by="", driver=ELASTIC),
        volume(flex=False),
    ],
)
def test_another_object_has_its_name(there: PersistentVolume) -> None:
    text = f"another PersistentVolume has the name {NAME} already"
    assert refused(facts(there=there)) == text


# --- what cannot be made -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "why"),
    [
        (claim(modes=("ReadWriteMany",)), "access mode ReadWriteMany is not possible"),
        (claim(modes=("ReadOnlyMany",)), "access mode ReadOnlyMany is not possible"),
        (claim(modes=("ReadWriteOnce", "ReadOnlyMany")), "access mode ReadOnlyMany"),
        (claim(size=None), "it asks for no storage"),
        (claim(size="0"), "it asks for no storage"),
        (claim(size="500m"), "it asks for no storage"),
        (claim(size="many"), "what is no quantity"),
        (claim(selector=LabelSelector()), "a claim with a selector"),
        (
            claim(data_source=DataSource(kind="VolumeSnapshot", name="s")),
            "made from VolumeSnapshot",
        ),
        (claim(data_source_ref=DataSource(kind="X", name="s")), "volumes cannot be made from X"),
        (claim(volume_mode="Block"), "a pool with the backend lvm"),
    ],
)
def test_claims_that_are_refused(about: PersistentVolumeClaim, why: str) -> None:
    """W-38: Azure: content sources are confirmed, not copied."""
    assert why in refused(about=about)


def test_filesystem_may_be_said() -> None:
    made(about=claim(volume_mode="Filesystem"))


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (storage_class(parameters={"fstype": "ext4"}), "did you mean fsType?"),
        (storage_class(parameters={"a": "", "fsType": "x"}), "a is not known; parameter fsType"),
        (storage_class(mount_options=("a b",)), "'a b' is no mount option"),
    ],
)
def test_classes_that_are_refused(of: StorageClass, why: str) -> None:
    said = refused(facts(of))
    assert said.startswith("class elastic-local: ")
    assert why in said


# --- where ---------------------------------------------------------------------------------------


def test_waiting_for_a_node() -> None:
    of = storage_class(volume_binding_mode=LATE)
    assert kept(facts(of)) == "no node is selected for it yet"
    assert "n1 does not exist" in kept(facts(of), claim(selected="n1"))
    # Also where it need not wait: it must not lie elsewhere than where its pod runs.
    assert "n1 does not exist" in kept(facts(), claim(selected="n1"))


def test_a_node_without_a_hostname() -> None:
    of = facts(storage_class(volume_binding_mode=LATE), on=node("n1", hostname=""))
    said = refused(of, claim(selected="n1"))
    assert said == "the Node 'n1' has no label kubernetes.io/hostname"


def test_topologies_that_nothing_would_heed() -> None:
    """An Immediate volume is bound to any node that mounts it first."""
    rack = TopologyRequirement(key="rack", values=("a",))
    topologies = (TopologyTerm(match_label_expressions=(rack,)),)
    said = refused(facts(storage_class(allowed_topologies=topologies)))
    assert said.startswith("allowedTopologies need volumeBindingMode WaitForFirstConsumer")
    late = storage_class(allowed_topologies=topologies, volume_binding_mode=LATE)
    made(facts(late, on=node("n1")), claim(selected="n1"))


def test_what_is_refused_is_refused_before_a_node_is_selected() -> None:
    """People should learn of it without a pod."""
    of = facts(storage_class(volume_binding_mode=LATE))
    assert "ReadWriteMany" in refused(of, claim(modes=("ReadWriteMany",)))


def test_it_is_json() -> None:
    assert msgspec.json.encode(made())
