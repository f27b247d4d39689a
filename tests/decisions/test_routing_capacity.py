"""What nodes offer to a class, and which of them is chosen."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.controller.plan.capacity import (
    Offer,
    allows,
    choose,
    offers_for,
    why_none,
)
from localvolume.controller.plan.ledger import COUNTED_SECONDS, Held, Ledger
from localvolume.controller.plan.nodes import Nodes
from localvolume.kube.objects import LabelSelector, Node, NodeSelectorRequirement
from localvolume.volumes import marks
from tests.decisions.support_controller import node
from tests.decisions.support_routing import OURS, capacity, shut, storage_class
from tests.suite.names import LOCAL_PATH
from tests.suite.units import GIB

NOW = storage_class("now", "Immediate")


def why(there: Node, hostname: str | None = None) -> str:
    thing = capacity(there.metadata.name, "1Gi", hostname=hostname)
    (offer,) = offers_for(NOW, [thing], Nodes([there]))
    return offer.why_not


def test_an_offer() -> None:
    found = offers_for(NOW, [capacity("n1", "2Gi", "5Gi")], Nodes([node("n1")]))
    assert list(found) == [Offer("n1", "n1", 2 * GIB, 5 * GIB)]


@pytest.mark.parametrize(
    ("maximum", "room", "expected"),
    [("2Gi", None, (2, 2)), (None, "3Gi", (3, 3)), (None, None, (0, 0)), ("1Gi", "0", (1, 0))],
)
def test_sizes_that_are_not_said(
    maximum: str | None, room: str | None, expected: tuple[int, int]
) -> None:
    (offer,) = offers_for(NOW, [capacity("n1", maximum, room)], Nodes([node("n1")]))
    assert (offer.largest // GIB, offer.capacity // GIB) == expected


def test_whose_room_does_not_count() -> None:
    others = [
        capacity("n1", "1Gi", class_name="another"),
        capacity("n1", "1Gi", driver=LOCAL_PATH),
        capacity("gone", "1Gi"),
    ]
    assert list(offers_for(NOW, others, Nodes([node("n1")]))) == []


def test_of_two_the_better_counts() -> None:
    """One of them is about to be taken away."""
    two = [capacity("n1", "1Gi"), capacity("n1", "2Gi"), capacity("n1", "9Gi", hostname="old")]
    (offer,) = offers_for(NOW, two, Nodes([node("n1")]))
    assert (offer.largest, offer.why_not) == (2 * GIB, "")


def test_nodes_that_take_nothing_now() -> None:
    assert why(node("n1")) == ""
    assert why(shut("n1", cordoned=True)) == "it is cordoned"
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        assert why(shut("n1", taint=key)) == "it is not ready"
    assert why(shut("n1", taint="example.com/dedicated")) == ""
    assert why(node("n1", hostname="new"), hostname="old") == "its room is for another hostname"
    long = "n" * 70
    assert why(node(long, hostname="short"), hostname="short") == ""


def test_room_without_a_topology_is_nowhere() -> None:
    thing = msgspec.structs.replace(capacity("n1", "1Gi"), node_topology=None)
    (offer,) = offers_for(NOW, [thing], Nodes([node("n1")]))
    assert offer.why_not == "its room is for another hostname"


def test_the_topology_as_a_selector() -> None:
    def why_by(topology: LabelSelector) -> str:
        there = node("n1", rack="a")
        (offer,) = offers_for(NOW, [capacity("n1", "1Gi", topology=topology)], Nodes([there]))
        return offer.why_not

    def racks(*values: str) -> tuple[NodeSelectorRequirement, ...]:
        return (NodeSelectorRequirement(key="rack", operator="In", values=values),)

    assert why_by(LabelSelector(match_expressions=racks("a", "b"))) == ""
    assert why_by(LabelSelector(match_expressions=racks("b"))) != ""
    assert why_by(LabelSelector(match_labels={"rack": "b"})) != ""
    assert why_by(LabelSelector(match_labels={"rack": "a"}, match_expressions=racks("b"))) != ""


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ([], True),
        ([{"rack": ["a"]}], True),
        ([{"rack": ["b"]}], False),
        ([{"rack": ["b"]}, {"rack": ["a"]}], True),
        ([{"rack": ["a"], "disk": ["nvme"]}], True),
        ([{"rack": ["a"], "disk": ["sata"]}], False),
        ([{"missing": ["a"]}], False),
        ([{"missing": [""]}], False),
        ([{}], False),
        ([{"rack": []}], False),
    ],
)
def test_allowed_topologies(allowed: list[dict[str, list[str]]], expected: bool) -> None:
    """E07, E08, L42 to L45: any term, all expressions of it."""
    class_ = storage_class("now", "Immediate", allowed=allowed)
    there = node("n1", rack="a", disk="nvme")
    assert allows(class_, there) is expected
    (offer,) = offers_for(class_, [capacity("n1", "1Gi")], Nodes([there]))
    assert (offer.why_not == "") is expected


def test_the_first_by_name_of_several() -> None:
    offers = [Offer(name, name, GIB, GIB) for name in ("b", "c", "d")]
    found = choose(offers, GIB, OURS, {}, {})
    assert found is not None
    assert found.node == "b"
    assert choose(offers, GIB + 1, OURS, {}, {}) is None
    found = choose(offers, GIB, OURS, {(OURS, "b"): 1}, {"c": ""})
    assert found is not None
    assert found.node == "d"


def test_several_pools() -> None:
    """One volume lies in one pool, so what is on its way may lie in another."""
    offers = [Offer("a", "a", 2 * GIB, 6 * GIB)]
    assert choose(offers, 2 * GIB, OURS, {(OURS, "a"): 4 * GIB}, {}) is not None
    assert choose(offers, 2 * GIB, OURS, {(OURS, "a"): 5 * GIB}, {}) is None
    assert choose(offers, 3 * GIB, OURS, {}, {}) is None


def test_a_node_that_may_not_be_taken_says_why_whatever_its_room() -> None:
    barred = Offer("a", "a", 9 * GIB, 9 * GIB, why_not="it is cordoned")
    assert choose([barred], GIB, OURS, {}, {}) is None
    text = why_none([barred, Offer("b", "b", GIB, GIB)], 2 * GIB, OURS, {}, {"b": ""})
    assert text == "no node takes 2Gi: a: it is cordoned; b: it gave the claim back"


def test_many_nodes_are_not_all_named() -> None:
    offers = [Offer(f"n{n}", f"n{n}", 0, 0) for n in range(1000)]
    text = why_none(offers, GIB, OURS, {}, {})
    assert text.endswith("n3: at most 0 fit; and 996 more")
    assert len(text) < 200


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.lists(st.integers(1, 10), max_size=40),
)
def test_many_at_once_fill_nodes_and_never_one_beyond_its_room(
    rooms: list[int], sizes: list[int]
) -> None:
    offers = [Offer(f"n{n}", f"n{n}", room, room) for n, room in enumerate(rooms)]
    ledger = Ledger()
    for number, size in enumerate(sizes):
        found = choose(offers, size, OURS, ledger.taken, {})
        left = [offer.capacity - ledger.taken.get((OURS, offer.key), 0) for offer in offers]
        if found is None:
            assert max(left) < size
        else:
            assert found.capacity - ledger.taken.get((OURS, found.key), 0) == max(left)
            ledger.put_in(f"x/{number}", Held(OURS, found.key, size, 0.0), 0.0)
    for offer in offers:
        assert ledger.taken.get((OURS, offer.key), 0) <= offer.capacity


def test_what_is_held_is_counted_once_and_not_for_ever() -> None:
    ledger = Ledger()
    at = (OURS, "n1")
    ledger.put_in("x/a", Held(*at, 5, 0.0), 0.0)
    ledger.put_in("x/a", Held(*at, 5, 0.0), 1.0)
    ledger.put_in("x/b", Held(*at, 7, 30.0), 30.0)
    assert ledger.taken == {at: 12}
    assert ledger.expire(COUNTED_SECONDS)
    assert not ledger.expire(COUNTED_SECONDS)
    assert ledger.taken == {at: 7}
    # Judged again, it stays too old; routed elsewhere, it begins anew.
    held = ledger.take_out("x/a")
    assert held is not None
    ledger.put_in("x/a", held, COUNTED_SECONDS + 1)
    assert ledger.taken == {at: 7}
    ledger.put_in("x/a", Held(OURS, "n2", 5, COUNTED_SECONDS + 1), COUNTED_SECONDS + 1)
    assert ledger.taken == {at: 7, (OURS, "n2"): 5}
    assert ledger.take_out("x/b") is not None
    assert ledger.take_out("x/b") is None
    assert ledger.taken == {(OURS, "n2"): 5}


def test_a_key_is_found_by_its_node() -> None:
    long = "n" * 70
    there = Nodes([node(long), node("a")])
    for name in (long, "a"):
        found = there.by_key(marks.node_key(name))
        assert found is not None
        assert found.metadata.name == name
    assert there.by_key("") is there.by_key("b") is None
