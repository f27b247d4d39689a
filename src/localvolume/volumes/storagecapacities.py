"""Whose a CSIStorageCapacity is, and which nodes it is about."""

from __future__ import annotations

from typing import Any

from localvolume.kube.objects import CSIStorageCapacity
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts


def labels_of(node_name: str, manager: str) -> dict[str, str]:
    """The labels of the objects that this manager keeps for the node."""
    return {marks.NODE_LABEL: marks.node_key(node_name), marks.MANAGER_LABEL: manager}


def is_kept_by(thing: CSIStorageCapacity, node_name: str, manager: str) -> bool:
    """Whether both labels say so."""
    return labels_of(node_name, manager).items() <= thing.metadata.labels.items()


def topology_of(node: NodeFacts) -> dict[str, Any]:
    """The `nodeTopology` of an object that is about this node (meta/v1 LabelSelector)."""
    return {"matchLabels": {marks.HOSTNAME_LABEL: node.hostname}}


def why_not_about(thing: CSIStorageCapacity, node: NodeFacts) -> str:
    """Why the object is not about this node's hostname alone; "" if it is."""
    found, wanted = thing.node_topology, topology_of(node)["matchLabels"]
    if found is None or found.match_labels != wanted or found.match_expressions:
        return f"it is not about the nodes with the hostname {node.hostname}"
    return ""
