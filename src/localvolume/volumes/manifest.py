"""The PersistentVolume that offers a local volume: upstream's object, and what we add to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from localvolume.kube.objects import Node
from localvolume.volumes import marks
from localvolume.volumes.capacity import published_bytes, quantity
from localvolume.volumes.identity import Identity, to_annotation


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a PersistentVolume says about its node (Kubernetes API, core/v1 Node)."""

    name: str
    uid: str
    hostname: str
    """The value of the label kubernetes.io/hostname, which is not always the name."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VolumeDescription:
    """One volume to be offered: where and what it is, and what its class says about it."""

    name: str
    host_path: str
    class_name: str
    volume_mode: str
    size_bytes: int
    identity: Identity
    reclaim_policy: str
    generation: str = ""
    """The generation in the volume's record; "" if it has no record."""
    cleaned: str = ""
    """When it was last cleaned, and the receipt; "" if that is not on record."""
    access_mode: str = "ReadWriteOnce"
    fs_type: str = ""
    mount_options: Sequence[str] = ()
    selector: Sequence[Mapping[str, Any]] = ()
    """Further NodeSelectorTerms for shared disks: any node that matches one may also serve it."""


@dataclass(frozen=True, slots=True)
class PublishingOptions:
    """The configuration options that apply to every PersistentVolume of a node."""

    node_labels: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    use_node_name_only: bool = False
    set_owner_reference: bool = False
    use_alpha_affinity: bool = False


def node_affinity(node: NodeFacts, selector: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The required node affinity: this node's hostname, or any further term of the class."""
    own = {"key": marks.HOSTNAME_LABEL, "operator": "In", "values": [node.hostname]}
    return {
        "nodeSelectorTerms": [
            {"matchExpressions": [own]},
            *(dict(term) for term in selector),
        ]
    }


def persistent_volume(
    volume: VolumeDescription, node: NodeFacts, options: PublishingOptions
) -> dict[str, Any]:
    """The object to create (Kubernetes API, core/v1 PersistentVolume with a `local` source).

    Equal to upstream's, field for field, except our label, finalizer and annotations.
    """
    labels = {key: node.labels[key] for key in options.node_labels if key in node.labels}
    labels |= options.labels
    labels[marks.NODE_LABEL] = marks.node_key(node.name)
    annotations = {
        marks.PROVISIONED_BY_ANNOTATION: marks.provisioned_by(
            node.name, node.uid, name_only=options.use_node_name_only
        ),
        marks.IDENTITY_ANNOTATION: to_annotation(volume.identity),
    }
    if volume.generation:
        annotations[marks.GENERATION_ANNOTATION] = volume.generation
    if volume.cleaned:
        annotations[marks.CLEANED_ANNOTATION] = volume.cleaned
    metadata: dict[str, Any] = {
        "name": volume.name,
        "labels": labels,
        "annotations": annotations,
        "finalizers": [marks.FINALIZER],
    }
    if options.set_owner_reference:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
        ]
    local = {"path": volume.host_path}
    if volume.fs_type:
        local["fsType"] = volume.fs_type
    spec: dict[str, Any] = {
        "capacity": {"storage": quantity(published_bytes(volume.size_bytes))},
        "accessModes": [volume.access_mode],
        "persistentVolumeReclaimPolicy": volume.reclaim_policy,
        "storageClassName": volume.class_name,
        "volumeMode": volume.volume_mode,
        "local": local,
    }
    if volume.mount_options:
        spec["mountOptions"] = list(volume.mount_options)
    affinity = node_affinity(node, volume.selector)
    if options.use_alpha_affinity:
        alpha = {"requiredDuringSchedulingIgnoredDuringExecution": affinity}
        annotations[marks.ALPHA_AFFINITY_ANNOTATION] = msgspec.json.encode(alpha).decode()
    else:
        spec["nodeAffinity"] = {"required": affinity}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def node_facts(name: str, node: Node | None) -> NodeFacts | str:
    """What a PersistentVolume says about the node, or why that is not known."""
    if node is None:
        return f"there is no Node {name!r}"
    hostname = node.metadata.labels.get(marks.HOSTNAME_LABEL, "")
    if not hostname:
        return f"the Node {name!r} has no label {marks.HOSTNAME_LABEL}"
    return NodeFacts(name, node.metadata.uid, hostname, node.metadata.labels)
