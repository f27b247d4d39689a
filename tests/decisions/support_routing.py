"""Builders for the routing of claims: claims, classes, capacities, and one moment's facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from localvolume.controller.plan.capacity import offers_for
from localvolume.controller.plan.claims import Action, Facts, Refusal, decide, refusal
from localvolume.controller.plan.nodes import Nodes
from localvolume.kube.objects import (
    ClaimRef,
    CSIStorageCapacity,
    HostPathSource,
    LabelSelector,
    LocalSource,
    Meta,
    Node,
    NodeSpec,
    PersistentVolume,
    PersistentVolumeClaim,
    PVCSpec,
    PVSpec,
    Requests,
    StorageClass,
    Taint,
    TopologyRequirement,
    TopologyTerm,
)
from localvolume.volumes import marks
from tests.decisions.support_controller import NOW, node
from tests.suite.names import LOCAL_PATH, SELECTED

S = TypeVar("S", bound=Action)

OURS = marks.DYNAMIC_PROVISIONER
GA = "volume.kubernetes.io/storage-provisioner"
BETA = "volume.beta.kubernetes.io/storage-provisioner"
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"

NODES = (node("n1"), node("n2"), node("n3"))


def claim(
    class_name: str | None = "late",
    *,
    size: str = "1Gi",
    label: str | None = None,
    selected: str | None = None,
    provisioner: str | None = OURS,
    provisioner_key: str = GA,
    refused: str | None = None,
    volume_name: str = "",
    deleted: bool = False,
    uid: str = "claim-uid",
    annotations: Mapping[str, str] | None = None,
) -> PersistentVolumeClaim:
    """A claim as kube-controller-manager leaves it for our provisioner to serve."""
    said = {provisioner_key: provisioner, SELECTED: selected, marks.REFUSED_ANNOTATION: refused}
    notes = {key: value for key, value in said.items() if value is not None}
    notes |= dict(annotations or {})
    return PersistentVolumeClaim(
        metadata=Meta(
            name="data",
            namespace="x",
            uid=uid,
            resource_version="5",
            labels={} if label is None else {marks.NODE_LABEL: label},
            annotations=notes,
            deletion_timestamp="2027-01-15T07:59:59Z" if deleted else None,
        ),
        spec=PVCSpec(
            storage_class_name=class_name,
            volume_name=volume_name,
            resources=Requests(requests={"storage": size}),
        ),
    )


def storage_class(
    name: str, mode: str | None, provisioner: str = OURS, allowed: Sequence[Mapping[str, Any]] = ()
) -> StorageClass:
    """`allowed`: the terms of allowedTopologies, each the values by key."""
    terms = tuple(
        TopologyTerm(
            match_label_expressions=tuple(
                TopologyRequirement(key=key, values=tuple(values)) for key, values in one.items()
            )
        )
        for one in allowed
    )
    return StorageClass(
        metadata=Meta(name=name),
        provisioner=provisioner,
        volume_binding_mode=mode,
        allowed_topologies=terms,
    )


CLASSES = (
    storage_class("late", "WaitForFirstConsumer"),
    storage_class("now", "Immediate"),
    storage_class("others", "WaitForFirstConsumer", "example.com/other"),
    storage_class("local-path", "WaitForFirstConsumer", LOCAL_PATH),
)


def capacity(
    of: str,
    maximum: str | None,
    room: str | None = None,
    *,
    class_name: str = "now",
    driver: str = OURS,
    hostname: str | None = None,
    topology: LabelSelector | None = None,
    problem: str = "",
) -> CSIStorageCapacity:
    """As the agent of the node `of` publishes it; its capacity is the largest volume's."""
    here = LabelSelector(match_labels={marks.HOSTNAME_LABEL: hostname or of})
    return CSIStorageCapacity(
        metadata=Meta(
            name=f"csisc-{of}-{class_name}",
            namespace="default",
            labels={
                marks.NODE_LABEL: marks.node_key(of),
                marks.DRIVER_LABEL: marks.driver_label(driver),
            },
            annotations={marks.PROBLEM_ANNOTATION: problem} if problem else {},
        ),
        storage_class_name=class_name,
        node_topology=topology or here,
        capacity=maximum if room is None else room,
        maximum_volume_size=maximum,
    )


def shut(name: str, *, cordoned: bool = False, taint: str = "") -> Node:
    """A Node that takes no pods now."""
    there = node(name)
    taints = (Taint(key=taint, effect="NoSchedule"),) if taint else ()
    return Node(metadata=there.metadata, spec=NodeSpec(taints=taints, unschedulable=cordoned))


def made(
    name: str = "pvc-1",
    *,
    holder: str | None = "claim-uid",
    label: str | None = "n1",
    provisioner: str | None = OURS,
    pool: bool = True,
    source: str = "local",
) -> PersistentVolume:
    """A dynamic volume, bound to the claim."""
    notes = {} if provisioner is None else {marks.PROVISIONED_BY_ANNOTATION: provisioner}
    if pool:
        notes[marks.POOL_ANNOTATION] = "fast/1"
    return PersistentVolume(
        metadata=Meta(
            name=name,
            labels={} if label is None else {marks.NODE_LABEL: label},
            annotations=notes,
        ),
        spec=PVSpec(
            local=LocalSource(path="/p") if source == "local" else None,
            host_path=HostPathSource(path="/p") if source == "hostPath" else None,
            claim_ref=None if holder is None else ClaimRef(namespace="x", name="data", uid=holder),
        ),
    )


def facts(
    nodes: Iterable[Node] = NODES,
    capacities: Sequence[CSIStorageCapacity] = (),
    *,
    classes: Iterable[StorageClass] = CLASSES,
    volumes: Iterable[PersistentVolume] = (),
    served: Iterable[str] = (OURS,),
    taken: Mapping[tuple[str, str], int] | None = None,
    refused: Mapping[str, Refusal] | None = None,
    now: float = NOW,
) -> Facts:
    there = Nodes(nodes)
    return Facts(
        provisioners=frozenset(served),
        classes={one.metadata.name: one for one in classes},
        nodes=there,
        volumes={one.metadata.name: one for one in volumes},
        offers=lambda class_: offers_for(class_, capacities, there),
        taken=taken or {},
        refused=refused or {},
        now=now,
    )


def action(about: PersistentVolumeClaim, *args: Any, **kwargs: Any) -> Action:
    """What is decided; what the claim itself says of refusals counts."""
    told = refusal(about)
    if told is not None:
        kwargs.setdefault("refused", dict([told]))
    return decide(facts(*args, **kwargs), about)


def a(kind: type[S], found: Action) -> S:
    """The action as what it must be; what it is instead is said with its reason."""
    assert isinstance(found, kind), found
    return found
