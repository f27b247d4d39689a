"""Claims that wait for no pod: the controller chooses the node by the room that agents publish."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.support_controller import Ground
from tests.cluster.support_objects import Objects
from tests.cluster.support_scheduling import Cluster, cluster_for
from tests.suite.names import ZONE
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

SMALL, LARGE = 32 * MIB, 96 * MIB


@pytest.fixture
def cluster(ground: Ground, objects: Objects, unique: str, tmp_path: Path) -> Iterator[Cluster]:
    with cluster_for(ground, objects, unique, tmp_path) as cluster:
        yield cluster


def test_the_node_with_the_most_room_among_those_allowed(cluster: Cluster) -> None:
    a, b = cluster.node("a", LARGE, **{ZONE: "one"}), cluster.node("b", SMALL, **{ZONE: "two"})
    anywhere = cluster.storage_class(waits=False)
    only = [{"matchLabelExpressions": [{"key": ZONE, "values": ["two", "three"]}]}]
    there = cluster.storage_class("zone", waits=False, allowedTopologies=only)
    for lab in (a, b):
        lab.start()
    full = cluster.measure(anywhere)
    # Only now: it could know of one node's room before it knows of the other's.
    cluster.start_controller()
    first = cluster.claim(anywhere, 8 * MIB)
    cluster.lives_on(first, a)
    second = cluster.claim(there, 8 * MIB)
    cluster.lives_on(second, b)
    third = cluster.claim(there, full[b.node] + MIB)
    cluster.event(third, "ProvisioningFailed", "it is not in the class's allowedTopologies")
    cluster.event(third, "ProvisioningFailed", f"{b.node}: at most ")
    cluster.pending(third)
    for claim in (first, second):
        assert cluster.refused(claim) == ""
        assert cluster.selected(claim) == ""


def test_many_at_once_are_spread_by_room_and_fill_it(cluster: Cluster) -> None:
    """Also where the controller comes later than they: it counts what it has only just sent."""
    a, b = cluster.node("a", 40 * MIB), cluster.node("b", 72 * MIB)
    cls = cluster.storage_class(waits=False)
    for lab in (a, b):
        lab.start()
    full = cluster.measure(cls)
    size = 4 * MIB
    assert 20 <= full[a.node] // size + full[b.node] // size <= 22
    claims = [cluster.claim(cls, size) for _ in range(20)]
    for claim in claims:
        cluster.asked_for(claim)
    cluster.start_controller()
    for claim in claims:
        cluster.bound(claim)
    used = cluster.none_overfull()
    assert sum(used.values()) == 20 * size
    # Nothing was sent where it did not fit.
    assert [claim for claim in claims if cluster.refused(claim)] == []


def test_what_a_node_refuses_goes_to_another_within_seconds(cluster: Cluster) -> None:
    """What it has published is stale: its disk went while no agent was there."""
    a, b = cluster.node("a", LARGE), cluster.node("b", SMALL)
    cls = cluster.storage_class(waits=False)
    for lab in (a, b):
        lab.start()
    cluster.measure(cls)
    a.stop()
    cluster.unmount_pool(a)
    # Only now: it could know of one node's room before it knows of the other's.
    cluster.start_controller()
    claim = cluster.claim(cls, 8 * MIB)
    assert cluster.routed(claim) == a.node
    a.start()
    text = cluster.event(claim, "ProvisioningFailed", f"node {a.node}: pool fast: ")["message"]
    assert text.endswith("another node is to be chosen")
    cluster.until(lambda: cluster.label(claim), lambda label: label == b.node)
    cluster.lives_on(claim, b)
    assert cluster.refused(claim).startswith(f"{a.node} 20")


def test_what_fits_nowhere_is_said_and_made_once_there_is_room(cluster: Cluster) -> None:
    a, b = cluster.node("a", SMALL), cluster.node("b", SMALL)
    cls = cluster.storage_class(waits=False)
    cluster.start()
    full = cluster.measure(cls)
    holders = [cluster.claim(cls, full[a.node] - 4 * MIB) for _ in range(2)]
    homes = {
        cluster.bound(claim)["metadata"]["labels"]["localvolume.dev/node"] for claim in holders
    }
    assert homes == {a.node, b.node}
    # A volume may be bound before its node publishes less: that node would be asked, and say no.
    cluster.until(lambda: max(cluster.rooms(cls).values()), lambda room: room <= 4 * MIB)
    waiting = cluster.claim(cls, 8 * MIB)
    cluster.event(waiting, "ProvisioningFailed", "no node takes 8Mi: ")
    cluster.pending(waiting)
    assert cluster.label(waiting) is None
    old = cluster.bound(holders[0])
    home = cluster.labs[old["metadata"]["labels"]["localvolume.dev/node"]]
    cluster.remove_claim(holders[0])
    cluster.lives_on(waiting, home)
    # Its room is free before its object has gone.
    home.gone(old)
    cluster.none_overfull()


def test_what_was_sent_to_a_node_that_vanishes_goes_to_another(cluster: Cluster) -> None:
    a, b = cluster.node("a", LARGE), cluster.node("b", SMALL)
    cls = cluster.storage_class(waits=False)
    for lab in (a, b):
        lab.start()
    cluster.measure(cls)
    a.stop()
    # Only now: it could know of one node's room before it knows of the other's.
    cluster.start_controller()
    claim = cluster.claim(cls, 8 * MIB)
    assert cluster.routed(claim) == a.node
    b.settle()
    assert cluster.label(claim) == a.node
    cluster.remove_node(a)
    cluster.lives_on(claim, b)


def test_when_all_nodes_refuse_it_waits_and_is_made_once_one_can(cluster: Cluster) -> None:
    """A node that refused is asked again only later: for as long the other one must do."""
    a, b = cluster.node("a", LARGE), cluster.node("b", SMALL)
    cls = cluster.storage_class(waits=False)
    for lab in (a, b):
        lab.start()
    full = cluster.measure(cls)
    b.stop()
    cluster.edit_capacity(b, cls, "1Gi")
    # Only now: what it knew before might be what it chooses by.
    cluster.start_controller()
    claim = cluster.claim(cls, full[b.node] + 4 * MIB)
    assert cluster.routed(claim) == b.node
    b.start()
    cluster.event(claim, "ProvisioningFailed", f"node {b.node}: pool fast: ")
    cluster.lives_on(claim, a)
    cluster.until(lambda: cluster.rooms(cls)[b.node], lambda room: room == full[b.node])
