"""Which nodes offer capacity for a class, and which of them takes a claim: pure.

Agents publish what nodes offer as CSIStorageCapacity. They need some time to publish less, so what
was routed to a node and is not bound yet is subtracted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from localvolume.controller.plan.nodes import Nodes
from localvolume.kube.objects import (
    CSIStorageCapacity,
    LabelSelector,
    Node,
    NodeSelectorTerm,
    StorageClass,
)
from localvolume.volumes import affinity, marks
from localvolume.volumes.capacity import bytes_of, quantity

REFUSED_SECONDS: Final = 300.0
"""How long a node that gave a claim back is not asked again."""

_NAMED: Final = 4
"""For how many nodes a message says why they do not take a claim."""

SHUT: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""The taints of a node that is not ready."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What one node has for one class, in bytes: the largest volume that fits, and the total.

    `why_not` says why nothing may be routed there, "" if it may. `problem` says why some or all of
    its pools cannot serve the class.
    """

    node: str
    key: str
    largest: int
    capacity: int
    why_not: str = ""
    problem: str = ""


Offers = Sequence[Offer]

Lack = Literal["pool", "room", "node"]
"""What is missing if no node takes a claim: any pool for its class, room in a pool that would take
it, or a node whose pool may be used at all."""


def offers_for(
    class_: StorageClass, capacities: Iterable[CSIStorageCapacity], nodes: Nodes
) -> Offers:
    """One offer for each Node that is there and publishes capacity for the class, by name."""
    driver, found = marks.driver_label(class_.provisioner), dict[str, Offer]()
    for thing in capacities:
        labels = thing.metadata.labels
        node = nodes.by_key(labels.get(marks.NODE_LABEL, ""))
        if node is None or labels.get(marks.DRIVER_LABEL) != driver:
            continue
        if thing.storage_class_name != class_.metadata.name:
            continue
        capacity = bytes_of(thing.capacity or "")
        largest = bytes_of(thing.maximum_volume_size or "")
        if largest is None:
            largest = capacity or 0
        name = node.metadata.name
        why_not = "" if _is_about(thing.node_topology, node) else "its room is for another hostname"
        why_not = why_not or _why_not(class_, node)
        problem = thing.metadata.annotations.get(marks.PROBLEM_ANNOTATION, "")
        capacity = largest if capacity is None else capacity
        offer = Offer(name, marks.node_key(name), largest, capacity, why_not, problem)
        # If there are two, one of them is about to go.
        if name not in found or _ranks(offer) > _ranks(found[name]):
            found[name] = offer
    return [found[name] for name in sorted(found)]


def choose(
    offers: Offers,
    wanted: int,
    provisioner: str,
    taken: Mapping[tuple[str, str], int],
    refused: Mapping[str, str],
) -> Offer | None:
    """The offer with the most capacity left that takes `wanted` bytes; of equals, the first.

    `refused` says by node name why nodes gave the claim back, "" if that is not known.
    """
    best: Offer | None = None
    most = -1
    for offer in offers:
        # The quickest checks come first: with a thousand nodes, that counts.
        if offer.capacity > most and offer.largest >= wanted:
            left = offer.capacity - taken.get((provisioner, offer.key), 0)
            if left > most and not _why_none(offer, wanted, left, refused):
                best, most = offer, left
    return best


def why_none(
    offers: Offers,
    wanted: int,
    provisioner: str,
    taken: Mapping[tuple[str, str], int],
    refused: Mapping[str, str],
) -> str:
    """Why no offer takes it, with a few nodes by name."""
    if not offers:
        return f"no node publishes room for its class, of {quantity(wanted)} that it asks for"
    texts = [
        f"{offer.node}: {_why_none(offer, wanted, left, refused)}"
        for offer in offers[:_NAMED]
        for left in [offer.capacity - taken.get((provisioner, offer.key), 0)]
    ]
    rest = len(offers) - len(texts)
    more = f"; and {rest} more" if rest else ""
    return f"no node takes {quantity(wanted)}: {'; '.join(texts)}{more}"


def lack(offers: Offers, refused: Mapping[str, str]) -> Lack:
    """What is missing if no offer takes a claim. It is room only if nothing else is in the way of
    at least one offer."""
    if not offers:
        return "pool"
    fit = any(
        not offer.why_not and offer.node not in refused and (offer.largest or not offer.problem)
        for offer in offers
    )
    return "room" if fit else "node"


def _why_none(offer: Offer, wanted: int, left: int, refused: Mapping[str, str]) -> str:
    if offer.why_not:
        return offer.why_not
    if offer.node in refused:
        why = refused[offer.node]
        return f"it gave the claim back: {why}" if why else "it gave the claim back"
    if wanted > offer.largest:
        most = f"at most {quantity(offer.largest)} fit"
        if offer.problem:
            return f"{most}; {offer.problem}" if offer.largest else offer.problem
        return most
    if wanted > left:
        return f"{quantity(max(0, left))} are left besides what is being made"
    return ""


def allows(class_: StorageClass, node: Node) -> bool:
    """Whether the class's allowedTopologies match the node: all expressions of any one term.

    As for the scheduler, a term without expressions matches no node, and no terms match all.
    """
    terms = class_.allowed_topologies
    labels = node.metadata.labels
    return not terms or any(
        bool(term.match_label_expressions)
        and all(labels.get(one.key) in one.values for one in term.match_label_expressions)
        for term in terms
    )


def _why_not(class_: StorageClass, node: Node) -> str:
    if not allows(class_, node):
        return "it is not in the class's allowedTopologies"
    if node.spec.unschedulable:
        return "it is cordoned"
    if any(taint.key in SHUT for taint in node.spec.taints):
        return "it is not ready"
    return ""


def _is_about(topology: LabelSelector | None, node: Node) -> bool:
    if topology is None:
        return False
    meta, rest = node.metadata, NodeSelectorTerm(match_expressions=topology.match_expressions)
    if rest.match_expressions and not affinity.matches(rest, meta.name, meta.labels):
        return False
    return all(meta.labels.get(key) == value for key, value in topology.match_labels.items())


def _ranks(offer: Offer) -> tuple[bool, int, int]:
    return (not offer.why_not, offer.largest, offer.capacity)
