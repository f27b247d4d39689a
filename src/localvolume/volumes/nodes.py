"""What a PersistentVolume says of its node, from the Node object."""

from __future__ import annotations

from localvolume.kube.objects import Node
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts


def node_facts(name: str, node: Node | None) -> NodeFacts | str:
    """What a PersistentVolume says of the node, or why that is not known."""
    if node is None:
        return f"there is no Node {name!r}"
    hostname = node.metadata.labels.get(marks.HOSTNAME_LABEL, "")
    if not hostname:
        return f"the Node {name!r} has no label {marks.HOSTNAME_LABEL}"
    return NodeFacts(name, node.metadata.uid, hostname, node.metadata.labels)
