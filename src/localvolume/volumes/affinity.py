"""Which nodes a PersistentVolume's required affinity selects (core/v1 NodeSelector)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from localvolume.kube.objects import (
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    VolumeNodeAffinity,
)
from localvolume.volumes import marks

_NAME_FIELD = "metadata.name"
# Created at import: threads that reached a first use at the same time crashed the process.
_decode: Final = msgspec.json.Decoder(VolumeNodeAffinity).decode


def required_terms(volume: PersistentVolume) -> Sequence[NodeSelectorTerm]:
    """The required terms, any one of which must match. No terms if no affinity can be read.

    Also reads the annotation that was used before Kubernetes 1.10.
    """
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        affinity = _alpha_affinity(volume)
    if affinity is None or affinity.required is None:
        return ()
    return affinity.required.node_selector_terms


def hostnames_of(term: NodeSelectorTerm) -> frozenset[str] | None:
    """The hostnames that are in every hostname list of a term; None if it has no such list."""
    lists = [
        frozenset(expression.values)
        for expression in term.match_expressions
        if expression.key == marks.HOSTNAME_LABEL and expression.operator == "In"
    ]
    return frozenset.intersection(*lists) if lists else None


def hostnames(terms: Sequence[NodeSelectorTerm]) -> frozenset[str]:
    """All hostnames that the terms name, as upstream's node-cleanup reads an affinity."""
    named = [found for term in terms if (found := hostnames_of(term))]
    return frozenset[str]().union(*named)


def matches(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Whether the term selects a node with that name and those labels.

    Follows the scheduler: every requirement must hold, and a term without any selects no node.
    """
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {_NAME_FIELD: name}
    return all(_holds(one, labels) for one in term.match_expressions) and all(
        _holds(one, fields) for one in term.match_fields
    )


def _holds(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
    return False


def _compares(requirement: NodeSelectorRequirement, value: str | None) -> bool:
    try:
        (bound,) = requirement.values
        there, limit = int(value or ""), int(bound)
    except ValueError:
        return False
    return there > limit if requirement.operator == "Gt" else there < limit


def _alpha_affinity(volume: PersistentVolume) -> VolumeNodeAffinity | None:
    text = volume.metadata.annotations.get(marks.ALPHA_AFFINITY_ANNOTATION)
    if text is None:
        return None
    try:
        raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        required = raw.get("requiredDuringSchedulingIgnoredDuringExecution")
        if required is None:
            return None
        wrapped = b'{"required":' + bytes(required) + b"}"
        return _decode(wrapped)
    except msgspec.MsgspecError:
        return None
