"""Whether a PersistentVolume is this node's, and may be mounted here. Pure."""

from __future__ import annotations

from collections.abc import Collection

from localvolume.flexvolume.driver import (
    TAG_CLAIM,
    TAG_CLAIM_UID,
    TAG_ON_REMOVAL,
    TAG_POLICY,
    TAG_PV_UID,
)
from localvolume.flexvolume.protocol import ON_REMOVAL, Refused
from localvolume.kube.objects import FlexVolumeSource, PersistentVolume
from localvolume.kube.workloads import Pod
from localvolume.volumes import affinity, marks
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.objects import claim_of, is_being_deleted, phase_of


def claims_of(pod: Pod) -> frozenset[str]:
    """The names of the claims that a pod uses, those of its generic ephemeral volumes included."""
    found = set()
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.add(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            found.add(f"{pod.metadata.name}-{volume.name}")
    return frozenset(found)


def check(live: PersistentVolume, node: NodeFacts, driver: str) -> FlexVolumeSource:
    """Returns its FlexVolume source; raises Refused unless a pod may mount it on this node."""
    name = live.metadata.name
    source = live.spec.flex_volume
    if source is None or source.driver != driver:
        what = f"is of the driver {source.driver}" if source else "is no FlexVolume"
        raise Refused(f"PersistentVolume {name} {what}, not of {driver}")
    if is_being_deleted(live):
        raise Refused(f"PersistentVolume {name} is being deleted")
    if phase_of(live) != "Bound" or not claim_of(live):
        raise Refused(f"PersistentVolume {name} is {phase_of(live)}, not Bound to a claim")
    if other := other_node(live, node):
        raise Refused(f"PersistentVolume {name} {other}, not to {node.name}")
    return source


def other_node(live: PersistentVolume, node: NodeFacts) -> str:
    """Says to which other node it is bound; "" if to none."""
    labels, key = live.metadata.labels, marks.node_key(node.name)
    for label in (marks.NODE_LABEL, marks.ELASTIC_NODE_LABEL):
        if labels.get(label, key) != key:
            return f"is bound to the node {labels[label]}"
    terms = affinity.required_terms(live)
    if terms and not any(affinity.matches(term, node.name, node.labels) for term in terms):
        names = ", ".join(sorted(affinity.hostnames(terms))) or "other nodes"
        return f"has a node affinity to {names}"
    return ""


def why_not(live: PersistentVolume, names: Collection[str], node: NodeFacts) -> str:
    """Why a volume of that name on this node is not this PersistentVolume's; "" if it is.

    Elastic's driver wrote the node into the affinity before it made anything, so an object without
    one has no volume anywhere yet: what is here by its name is somebody else's.
    """
    if not is_served(live, names):
        return "it is of no FlexVolume driver that is served here"
    terms = affinity.required_terms(live)
    if not terms:
        return "it is bound to no node"
    if not any(affinity.matches(term, node.name, node.labels) for term in terms):
        return "it is bound to another node"
    return other_node(live, node)


def is_elastics(live: PersistentVolume) -> bool:
    """Whether elastic's driver may have made its volume: it binds to a node before that."""
    source = live.spec.flex_volume
    bound = bool(affinity.required_terms(live)) or marks.ELASTIC_NODE_LABEL in live.metadata.labels
    return source is not None and source.driver == marks.ELASTIC_FLEX_DRIVER and bound


def tags_of(live: PersistentVolume) -> dict[str, str]:
    """What is noted with the volume of a PersistentVolume."""
    ref, source = live.spec.claim_ref, live.spec.flex_volume
    return {
        TAG_PV_UID: live.metadata.uid,
        TAG_CLAIM: f"{ref.namespace}/{ref.name}" if ref else "",
        TAG_CLAIM_UID: ref.uid if ref else "",
        TAG_POLICY: live.spec.persistent_volume_reclaim_policy or "Retain",
        TAG_ON_REMOVAL: source.options.get(ON_REMOVAL, "") if source else "",
    }


def is_served(live: PersistentVolume, names: Collection[str]) -> bool:
    """Whether it is of one of these drivers."""
    return live.spec.flex_volume is not None and live.spec.flex_volume.driver in names
