"""The node and the configured classes as a plan needs them, from the objects that say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from localvolume.config.model import Configuration
from localvolume.kube.objects import Node, StorageClass
from localvolume.static.model import ClassFacts
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts, PublishingOptions


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every step of one plan has in common."""

    node: NodeFacts
    options: PublishingOptions
    classes: dict[str, ClassFacts] = field(default_factory=dict)


def node_facts(name: str, node: Node | None) -> NodeFacts | str:
    """What a PersistentVolume says of the node, or why that is not known."""
    if node is None:
        return f"there is no Node {name!r}"
    hostname = node.metadata.labels.get(marks.HOSTNAME_LABEL, "")
    if not hostname:
        return f"the Node {name!r} has no label {marks.HOSTNAME_LABEL}"
    return NodeFacts(name, node.metadata.uid, hostname, node.metadata.labels)


def surroundings(
    configuration: Configuration,
    node: NodeFacts,
    storage_classes: Mapping[str, StorageClass] | None,
) -> Surroundings:
    """Configuration and StorageClass objects joined; None for the latter where nobody was asked,
    and every class then counts as existing with reclaim policy Delete."""
    options = PublishingOptions(
        node_labels=configuration.node_labels_for_pv,
        labels=configuration.labels_for_pv,
        use_node_name_only=configuration.use_node_name_only,
        set_owner_reference=configuration.set_pv_owner_ref,
        use_alpha_affinity=configuration.use_alpha_api,
    )
    classes = {}
    for name, config in configuration.storage_classes.items():
        known = (storage_classes or {}).get(name)
        if storage_classes is None:
            classes[name] = ClassFacts(config)
        elif known is None:
            classes[name] = ClassFacts(config, exists=False)
        else:
            policy = known.reclaim_policy or "Delete"
            classes[name] = ClassFacts(config, True, policy, known.mount_options)
    return Surroundings(node, options, classes)
