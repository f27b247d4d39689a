"""Builders for the controller's decisions: Nodes, PersistentVolumes, and one moment's facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from localvolume.controller.model import Action, Policy
from localvolume.controller.plan.nodes import Nodes
from localvolume.controller.plan.volumes import Facts, decide
from localvolume.kube.objects import (
    ClaimRef,
    LocalSource,
    Meta,
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PVSpec,
    PVStatus,
    VolumeNodeAffinity,
)
from localvolume.volumes import marks
from localvolume.volumes.periods import Moment, Witnessed

S = TypeVar("S", bound=Action)

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
JUST_NOW = "2027-01-15T08:00:00Z"
AN_HOUR_AGO = "2027-01-15T07:00:00Z"
LONG_AGO = "2026-12-15T08:00:00Z"
LISTED = Policy(delete_classes=frozenset({"fast"}))


def node(name: str, hostname: str | None = None, **labels: str) -> Node:
    """A Node whose hostname label is its name unless another is given; "" leaves it out."""
    hostname = name if hostname is None else hostname
    own = {marks.HOSTNAME_LABEL: hostname} if hostname else {}
    return Node(metadata=Meta(name=name, uid=f"uid-of-{name}", labels=own | labels))


def requirement(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


def on_hosts(*hostnames: str) -> NodeSelectorTerm:
    return term(requirement(marks.HOSTNAME_LABEL, "In", *hostnames))


def term(*requirements: NodeSelectorRequirement) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=requirements)


def affinity_of(*terms: NodeSelectorTerm) -> VolumeNodeAffinity:
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms))


def volume(
    *terms: NodeSelectorTerm,
    phase: str = "Available",
    policy: str = "Delete",
    claim: str | None = None,
    class_name: str = "fast",
    provisioner: str | None = "local-volume-provisioner-gone-1234",
    label: str | None = "gone",
    lost: str | None = None,
    deleted: bool = False,
    finalizers: tuple[str, ...] = (marks.FINALIZER,),
    annotations: Mapping[str, str] | None = None,
    local: bool = True,
) -> PersistentVolume:
    """A volume of ours, on the node `gone` unless other terms are given."""
    notes = dict(annotations or {})
    if provisioner is not None:
        notes[marks.PROVISIONED_BY_ANNOTATION] = provisioner
    if lost is not None:
        notes[marks.LOST_ANNOTATION] = lost
    return PersistentVolume(
        metadata=Meta(
            name="local-pv-1",
            uid="volume-uid",
            resource_version="7",
            labels={} if label is None else {marks.NODE_LABEL: label},
            annotations=notes,
            finalizers=finalizers,
            deletion_timestamp="2027-01-15T07:59:59Z" if deleted else None,
        ),
        spec=PVSpec(
            storage_class_name=class_name,
            persistent_volume_reclaim_policy=policy,
            local=LocalSource(path="/mnt/disks/one") if local else None,
            claim_ref=None if claim is None else ClaimRef(namespace="x", name="data", uid=claim),
            node_affinity=affinity_of(*(terms or (on_hosts("gone"),))),
        ),
        status=PVStatus(phase=phase),
    )


def action(
    about: PersistentVolume,
    nodes: Iterable[Node] = (),
    policy: Policy = LISTED,
    now: float | Moment = NOW,
    witnessed: Witnessed | None = None,
) -> Action:
    now = now if isinstance(now, Moment) else Moment(now, now)
    seen = Witnessed(0.0, now.earlier) if witnessed is None else witnessed
    return decide(Facts(Nodes(nodes), policy, now, seen), about)


def a(kind: type[S], found: Any) -> S:
    """The action as what it must be; what it is instead is said with its reason."""
    assert isinstance(found, kind), found
    return found
