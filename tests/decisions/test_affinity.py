"""Node affinity: whether a PersistentVolume names this node."""

from __future__ import annotations

import json

import pytest

from localvolume.kube.objects import (
    Meta,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PVSpec,
    VolumeNodeAffinity,
)
from localvolume.volumes import marks
from localvolume.volumes.objects import is_on_node
from tests.suite.names import ZONE

HOST = "kubernetes.io/hostname"


def one(key: str, *values: str, operator: str = "In") -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


def term(*expressions: NodeSelectorRequirement) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=expressions)


def selecting(*terms: NodeSelectorTerm) -> PersistentVolume:
    affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms))
    return PersistentVolume(spec=PVSpec(node_affinity=affinity))


def names(volume: PersistentVolume) -> set[str]:
    """Which of four nodes the volume names."""
    return {node for node in ("a", "b", "c", "z") if is_on_node(volume, node)}


@pytest.mark.parametrize(
    ("volume", "nodes"),
    [
        pytest.param(PersistentVolume(), "", id="nothing at all"),
        pytest.param(PersistentVolume(spec=PVSpec()), "", id="no affinity"),
        pytest.param(
            PersistentVolume(spec=PVSpec(node_affinity=VolumeNodeAffinity())), "", id="no required"
        ),
        pytest.param(selecting(), "", id="zero terms"),
        pytest.param(selecting(term()), "", id="zero expressions"),
        pytest.param(selecting(term(one(ZONE, "a"))), "", id="foreign key"),
        pytest.param(selecting(term(one("kubernetes.io/arch", "a"))), "", id="another key"),
        pytest.param(selecting(term(one(HOST))), "", id="empty values"),
        pytest.param(selecting(term(one(HOST, "a"))), "a", id="one"),
        pytest.param(selecting(term(one(HOST, "a", "b"))), "ab", id="two"),
        pytest.param(selecting(term(one(HOST, "a"), one(ZONE, "z"))), "a", id="mixed keys"),
        pytest.param(selecting(term(one(ZONE, "z"), one(HOST, "a"))), "a", id="mixed, other order"),
        pytest.param(
            selecting(term(one(HOST, "a")), term(one(HOST, "b"))), "ab", id="union across terms"
        ),
        pytest.param(
            selecting(term(one(HOST, "a")), term(one(ZONE, "z"))),
            "a",
            id="a term without a hostname names nobody",
        ),
        pytest.param(
            selecting(term(one(HOST, "a", "b"), one(HOST, "b", "c"))),
            "b",
            id="intersection within a term",
        ),
        pytest.param(
            selecting(term(one(HOST, "a"), one(HOST, "b"))), "", id="an empty intersection"
        ),
        pytest.param(
            selecting(
                term(one(HOST, "a", "b"), one(HOST, "b", "c")),
                term(one(HOST, "c"), one(ZONE, "z")),
            ),
            "bc",
            id="intersection and union",
        ),
        pytest.param(selecting(term(one(HOST, "a", operator="NotIn"))), "", id="NotIn"),
        pytest.param(selecting(term(one(HOST, operator="Exists"))), "", id="Exists"),
    ],
)
def test_the_nodes_that_an_affinity_names(volume: PersistentVolume, nodes: str) -> None:
    assert names(volume) == set(nodes)


# --- the annotation that upstream's useAlphaAPI writes instead ----------------------------------


def alpha(text: str, affinity: VolumeNodeAffinity | None = None) -> PersistentVolume:
    return PersistentVolume(
        metadata=Meta(annotations={marks.ALPHA_AFFINITY_ANNOTATION: text}),
        spec=PVSpec(node_affinity=affinity),
    )


OWN_TERM = {"matchExpressions": [{"key": HOST, "operator": "In", "values": ["a"]}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def test_an_affinity_in_the_alpha_annotation_counts() -> None:
    assert names(alpha(json.dumps({REQUIRED: {"nodeSelectorTerms": [OWN_TERM]}}))) == {"a"}


def test_the_field_counts_more_than_the_annotation() -> None:
    field = selecting(term(one(HOST, "b"))).spec.node_affinity
    text = json.dumps({REQUIRED: {"nodeSelectorTerms": [OWN_TERM]}})
    assert names(alpha(text, field)) == {"b"}


def test_an_empty_field_does_not_hide_the_annotation() -> None:
    text = json.dumps({REQUIRED: {"nodeSelectorTerms": [OWN_TERM]}})
    assert names(alpha(text, VolumeNodeAffinity())) == {"a"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "{}",
        "null",
        "[]",
        f'{{"{REQUIRED}":null}}',
        f'{{"{REQUIRED}":"a"}}',
        f'{{"{REQUIRED}":{{}}}}',
        f'{{"{REQUIRED}":{{"nodeSelectorTerms":null}}}}',
        f'{{"{REQUIRED}":{{"nodeSelectorTerms":[{{"matchExpressions":null}}]}}}}',
        '{"preferredDuringSchedulingIgnoredDuringExecution":[]}',
    ],
)
def test_an_annotation_that_cannot_be_read_names_nobody(text: str) -> None:
    assert names(alpha(text)) == set()
