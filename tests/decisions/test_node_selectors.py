"""Node selectors, read as the scheduler reads them (core/v1 NodeSelectorTerm)."""

from __future__ import annotations

import pytest

from localvolume.kube.objects import NodeSelectorTerm
from localvolume.volumes.affinity import matches
from tests.decisions.support_controller import requirement, term

LABELS = {"rack": "7", "disk": "nvme", "empty": ""}


@pytest.mark.parametrize(
    ("operator", "values", "key", "expected"),
    [
        ("In", ["7", "8"], "rack", True),
        ("In", ["8"], "rack", False),
        ("In", ["7"], "absent", False),
        ("In", [""], "empty", True),
        ("NotIn", ["8"], "rack", True),
        ("NotIn", ["7"], "rack", False),
        ("NotIn", ["7"], "absent", True),
        ("Exists", [], "empty", True),
        ("Exists", [], "absent", False),
        ("DoesNotExist", [], "absent", True),
        ("DoesNotExist", [], "rack", False),
        ("Gt", ["6"], "rack", True),
        ("Gt", ["7"], "rack", False),
        ("Lt", ["8"], "rack", True),
        ("Lt", ["7"], "rack", False),
        ("Gt", ["6"], "disk", False),
        ("Gt", ["six"], "rack", False),
        ("Gt", ["6", "5"], "rack", False),
        ("Gt", ["6"], "absent", False),
        ("Unheard", ["7"], "rack", False),
    ],
)
def test_operators(operator: str, values: list[str], key: str, expected: bool) -> None:
    assert matches(term(requirement(key, operator, *values)), "n1", LABELS) is expected


def test_all_requirements_must_hold() -> None:
    rack, nvme = requirement("rack", "In", "7"), requirement("disk", "In", "nvme")
    assert matches(term(rack, nvme), "n1", LABELS)
    assert not matches(term(rack, requirement("disk", "In", "rust")), "n1", LABELS)


def test_a_term_without_requirements_means_no_node() -> None:
    assert not matches(term(), "n1", LABELS)


def test_a_field_is_the_nodes_name() -> None:
    by_name = NodeSelectorTerm(match_fields=(requirement("metadata.name", "In", "n1"),))
    assert matches(by_name, "n1", {})
    assert not matches(by_name, "n2", {})
    other = NodeSelectorTerm(match_fields=(requirement("metadata.uid", "In", "n1"),))
    assert not matches(other, "n1", {})
