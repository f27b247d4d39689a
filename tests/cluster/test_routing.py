"""Claims get their node's label: with the real scheduler and kube-controller-manager."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from localvolume.controller.plan.capacity import REFUSED_SECONDS
from localvolume.volumes.marks import DYNAMIC_PROVISIONER, OURS, node_key
from localvolume.volumes.moments import written
from tests.cluster.support_controller import Ground
from tests.cluster.support_routing import Routing, seconds_until
from tests.suite import speed
from tests.suite.api import CLAIMS, PODS, VOLUMES
from tests.suite.names import HOSTNAME, NODE_LABEL, PROVISIONER, REFUSED, SELECTED
from tests.suite.until import until

pytestmark = pytest.mark.needs("controlplane")


@pytest.fixture
def routing(ground: Ground) -> Routing:
    return Routing(ground)


def heeded(routing: Routing, class_name: str, *nodes: str) -> None:
    """Wait until the scheduler heeds the room that is published for the class."""
    # Before it sees the CSIDriver, it sends the claim to a node without asking for room.
    until(lambda: _refused_for_room(routing, class_name, *nodes))


def _refused_for_room(routing: Routing, class_name: str, *nodes: str) -> bool:
    ground = routing.ground
    probe = routing.claim(class_name, "1Pi")
    pod = f"{PODS}/{routing.pod(probe, *nodes)}"

    def said() -> str:
        conditions = ground.plane.request("GET", pod)["status"].get("conditions", [])
        return "".join(one.get("message", "") for one in conditions)

    refused = "did not have enough free storage"
    ground.until(lambda: refused in said() or SELECTED in routing.notes(probe), bool)
    heeds = SELECTED not in routing.notes(probe)
    ground.plane.request("DELETE", pod, {"gracePeriodSeconds": 0})
    return heeds


@pytest.mark.parametrize("driver", sorted(OURS))
def test_the_node_that_the_scheduler_chose(ground: Ground, driver: str) -> None:
    """E01; and it heeds the room that is published: the CSIDriver is there."""
    routing = Routing(ground, driver)
    small, large = ground.node("small"), ground.node("large")
    cls = routing.storage_class()
    routing.capacity(cls, small, "1Gi")
    routing.capacity(cls, large, "9Gi")
    ground.start()
    heeded(routing, cls, small, large)
    claim = routing.claim(cls, "5Gi")
    routing.settle()
    assert routing.label(claim) is None, "nobody has selected a node for it"
    routing.pod(claim, small, large)
    routing.routed(claim, large)
    assert routing.notes(claim)[SELECTED] == large
    assert routing.notes(claim)[PROVISIONER] == driver
    routed = "localvolume_routed_claims_total"
    ground.until(lambda: ground.metric(routed, result="routed") or 0, lambda n: n >= 1)
    assert not ground.events(claim)


def test_a_node_that_goes_before_the_volume_is_made(ground: Ground, routing: Routing) -> None:
    """The scheduler gets to choose again, and the pod ends up where it can run."""
    first, second = ground.node("first"), ground.node("second")
    cls = routing.storage_class()
    routing.capacity(cls, first, "9Gi")
    ground.start()
    heeded(routing, cls, first, second)
    claim = routing.claim(cls)
    routing.pod(claim, first, second)
    routing.routed(claim, first)
    routing.capacity(cls, second, "9Gi")
    ground.remove_node(first)
    routing.routed(claim, second)
    assert routing.notes(claim)[SELECTED] == second
    ground.event(claim, "ProvisioningFailed", f"the selected node {first} does not exist")
    routed = "localvolume_routed_claims_total"
    # Claims that tried the scheduler were sent to that node, too.
    ground.until(lambda: ground.metric(routed, result="rescheduled"), bool)


def test_a_name_that_is_no_label(ground: Ground, routing: Routing) -> None:
    node = ground.node("x" * 70, {HOSTNAME: f"{ground.unique}-huge"})
    assert node_key(node) != node
    ground.start()
    claim = routing.claim(routing.storage_class(), selected=node)
    routing.routed(claim, node)


def test_another_selection_before_it_is_bound(ground: Ground, routing: Routing) -> None:
    nodes = [ground.node(name) for name in "abc"]
    ground.start()
    claim = routing.claim(routing.storage_class(), selected=nodes[0])
    for node in [*nodes, *nodes]:
        routing.select(claim, node)
        routing.routed(claim, node)
    # An agent gives it back by taking the selected node away.
    routing.select(claim, None)
    routing.routed(claim, None)
    routing.select(claim, nodes[1])
    routing.routed(claim, nodes[1])


def test_what_is_selected_while_nobody_leads(ground: Ground, routing: Routing) -> None:
    node = ground.node()
    cls = routing.storage_class()
    late, never = routing.claim(cls, selected=node), routing.claim(cls, label=node)
    gone = routing.claim(cls, selected=f"{ground.unique}-gone", label=f"{ground.unique}-gone")
    routing.until(never, lambda c: c["metadata"]["labels"])
    routing.change(never, {PROVISIONER: DYNAMIC_PROVISIONER})
    ground.start()
    routing.routed(late, node)
    routing.routed(never, None)
    routing.routed(gone, None)
    assert SELECTED not in routing.notes(gone)


def test_a_class_that_comes_after_its_claim(ground: Ground, routing: Routing) -> None:
    """L07, L49: tried again when it is there."""
    node = ground.node()
    ground.start()
    name = f"{ground.unique}-dyn"
    claim = routing.claim(name, selected=node, provisioner=DYNAMIC_PROVISIONER)
    routing.settle()
    assert routing.label(claim) is None
    routing.storage_class()
    routing.routed(claim, node)


def test_provisioners_that_are_not_ours(ground: Ground) -> None:
    """L50 and its like: not with the label, and not when the selected node is gone."""
    others = Routing(ground, "example.com/other")
    node, gone = ground.node(), f"{ground.unique}-gone"
    cls = others.storage_class(suffix="other")
    there = others.claim(cls, selected=node)
    lost = others.claim(cls, selected=gone, label=gone)
    ground.start()
    others.settle()
    assert others.label(there) is None
    assert others.label(lost) == gone
    assert others.notes(lost)[SELECTED] == gone


def test_a_provisioner_that_is_replaced(ground: Ground) -> None:
    """L47: named by the flag, it is served as our own."""
    paths = Routing(ground, "rancher.io/local-path")
    node = ground.node()
    ground.start(provisioners=["rancher.io/local-path"])
    claim = paths.claim(paths.storage_class(), selected=node)
    paths.routed(claim, node)
    now = paths.storage_class("Immediate", suffix="now")
    paths.capacity(now, node, "5Gi")
    paths.routed(paths.claim(now), node)


# --- Immediate -----------------------------------------------------------------------------------


def test_immediate_claims_go_where_there_is_room(ground: Ground, routing: Routing) -> None:
    """E05, E06: and those that fit nowhere when room is made."""
    nodes = [ground.node(name) for name in "abc"]
    cls = routing.storage_class("Immediate")
    for node, size in zip(nodes, ("2Gi", "9Gi", "5Gi"), strict=True):
        routing.capacity(cls, node, size)
    ground.start(lost=600)
    routing.routed(routing.claim(cls, "6Gi"), nodes[1])
    huge = routing.claim(cls, "20Gi")
    said = ground.event(huge, "ProvisioningFailed", "no node takes 20Gi")
    assert f"{nodes[0]}: at most 2Gi fit" in said["message"]
    assert said["type"] == "Warning"
    routing.settle()
    found = routing.now(huge)["metadata"]
    assert SELECTED not in found["annotations"]
    assert NODE_LABEL not in found["labels"]
    ground.until(lambda: ground.metric("localvolume_unroutable_claims"), lambda n: n == 1)
    routing.capacity(cls, nodes[2], "30Gi")
    routing.routed(huge, nodes[2])
    ground.until(lambda: ground.metric("localvolume_unroutable_claims"), lambda n: n == 0)
    assert SELECTED not in routing.notes(huge)


def test_allowed_topologies(ground: Ground, routing: Routing) -> None:
    """E07, E08, and when a node gets the label."""
    inside, outside = ground.node("in", {"rack": "a"}), ground.node("out", {"rack": "b"})
    cls = routing.storage_class("Immediate", allowed=[{"rack": ["a"]}])
    routing.capacity(cls, outside, "9Gi")
    routing.capacity(cls, inside, "2Gi")
    ground.start(lost=600)
    routing.routed(routing.claim(cls), inside)
    claim = routing.claim(cls, "5Gi")
    text = f"{outside}: it is not in the class's allowedTopologies"
    ground.event(claim, "ProvisioningFailed", text)
    ground.patch(f"/api/v1/nodes/{outside}", {"metadata": {"labels": {"rack": "a"}}})
    routing.routed(claim, outside)
    late = routing.storage_class(suffix="late", allowed=[{"rack": ["c"]}])
    wrong = routing.claim(late, selected=inside)
    ground.event(wrong, "ProvisioningFailed", "not in the class's allowedTopologies")
    assert SELECTED not in routing.notes(wrong)


def test_nodes_that_take_no_pods(ground: Ground, routing: Routing) -> None:
    cordoned, ready = ground.node("cordoned"), ground.node("ready")
    ground.patch(f"/api/v1/nodes/{cordoned}", {"spec": {"unschedulable": True}})
    cls = routing.storage_class("Immediate")
    routing.capacity(cls, cordoned, "9Gi")
    ground.start(lost=600)
    claim = routing.claim(cls)
    ground.event(claim, "ProvisioningFailed", f"{cordoned}: it is cordoned")
    routing.capacity(cls, ready, "2Gi")
    routing.routed(claim, ready)
    second = routing.claim(cls, "5Gi")
    ground.event(second, "ProvisioningFailed", f"{ready}: at most 2Gi fit")
    ground.patch(f"/api/v1/nodes/{cordoned}", {"spec": {"unschedulable": None}})
    routing.routed(second, cordoned)


def test_many_at_once_do_not_all_go_to_one_node(ground: Ground, routing: Routing) -> None:
    """What is on its way is subtracted before any agent could publish less."""
    nodes = [ground.node(name) for name in "abc"]
    cls = routing.storage_class("Immediate")
    for node in nodes:
        routing.capacity(cls, node, "10Gi")
    ground.start(lost=600)
    claims = [routing.claim(cls, "2Gi") for _ in range(18)]
    labels = ground.until(
        lambda: Counter(filter(None, map(routing.label, claims))), lambda n: n.total() == 15
    )
    assert labels == dict.fromkeys(nodes, 5)
    routing.settle()
    left = [claim for claim in claims if routing.label(claim) is None]
    assert len(left) == 3
    ground.event(left[0], "ProvisioningFailed", "are left besides what is being made")
    # One is bound, and its agent has not published less: there is room.
    bound = next(claim for claim in claims if routing.label(claim) == nodes[0])
    routing.volume_for(bound, nodes[0])
    ground.until(lambda: [c for c in left if routing.label(c) == nodes[0]], len)


def test_a_claim_that_is_given_back(ground: Ground, routing: Routing) -> None:
    """As an agent does it: its node's refusal is written down, and the label is taken away."""
    nodes = [ground.node(name) for name in "ab"]
    cls = routing.storage_class("Immediate")
    routing.capacity(cls, nodes[0], "9Gi")
    routing.capacity(cls, nodes[1], "5Gi")
    ground.start()
    claim = routing.claim(cls)
    routing.routed(claim, nodes[0])
    routing.change(claim, {REFUSED: f"{nodes[0]} {written(time.time())}"}, {NODE_LABEL: None})
    routing.routed(claim, nodes[1])
    # The claim names one node only; the other is not forgotten.
    routing.change(claim, {REFUSED: f"{nodes[1]} {written(time.time())}"}, {NODE_LABEL: None})
    ground.event(claim, "ProvisioningFailed", f"{nodes[0]}: it gave the claim back; {nodes[1]}: it")
    assert routing.label(claim) is None
    # After a while it is asked again.
    earlier = written(time.time() - REFUSED_SECONDS)
    routing.change(claim, {REFUSED: f"{nodes[1]} {earlier}"}, {NODE_LABEL: None})
    routing.routed(claim, nodes[1])


def test_the_node_of_an_immediate_claim_goes(ground: Ground, routing: Routing) -> None:
    first, second = ground.node("a"), ground.node("b")
    cls = routing.storage_class("Immediate")
    routing.capacity(cls, first, "9Gi")
    routing.capacity(cls, second, "5Gi")
    ground.start(lost=600)
    claim = routing.claim(cls)
    routing.routed(claim, first)
    ground.remove_node(first)
    routing.routed(claim, second)
    ground.remove_node(second)
    routing.routed(claim, None)
    ground.event(claim, "ProvisioningFailed", "no node publishes room")


def test_the_first_claim_of_a_new_class_is_not_told_that_it_fails(
    ground: Ground, routing: Routing
) -> None:
    """The room for it is published a moment later."""
    node = ground.node()
    cls = routing.storage_class("Immediate")
    ground.start(nowhere=60.0)
    claim = routing.claim(cls)
    unroutable = "localvolume_unroutable_claims"
    ground.until(lambda: ground.metric(unroutable) or 0, lambda count: count >= 1)
    routing.capacity(cls, node, "9Gi")
    routing.routed(claim, node)
    assert not ground.events(claim)


# --- bound claims --------------------------------------------------------------------------------


def test_a_bound_claim_has_the_label_of_its_volume(ground: Ground, routing: Routing) -> None:
    node, other = ground.node("a"), ground.node("b")
    cls = routing.storage_class()
    ground.start()
    before, wrong = routing.claim(cls), routing.claim(cls, selected=other)
    routing.routed(wrong, other)
    for claim in (before, wrong):
        routing.volume_for(claim, node)
        routing.until(claim, lambda c: c.get("status", {}).get("phase") == "Bound")
        routing.routed(claim, node)
    # Also when the volume gets its label after that: one of ours that lost it gets it again.
    late = routing.claim(cls, label=other)
    volume = routing.volume_for(late, node, labels={})
    routing.routed(late, node)
    routing.until(late, lambda c: c.get("status", {}).get("phase") == "Bound")
    path = f"{VOLUMES}/{volume['metadata']['name']}"
    ground.patch(path, {"metadata": {"labels": {NODE_LABEL: other}}})
    routing.routed(late, other)


def test_a_claim_that_is_bound_to_another_volume(ground: Ground, routing: Routing) -> None:
    """A prepared volume was free after all: the label that was for a new one goes."""
    node = ground.node()
    cls = routing.storage_class()
    ground.start()
    claim = routing.claim(cls, "1Mi", selected=node)
    routing.routed(claim, node)
    volume = ground.volume(node, cls=cls)
    path = f"{VOLUMES}/{volume['metadata']['name']}"
    ref = {"namespace": "default", "name": claim["metadata"]["name"]}
    ground.patch(path, {"spec": {"claimRef": ref}})
    routing.until(claim, lambda c: c.get("status", {}).get("phase") == "Bound")
    routing.routed(claim, None)


# --- how fast ------------------------------------------------------------------------------------


def test_it_is_quick(ground: Ground, routing: Routing) -> None:
    """A goal of 20 ms on a quiet machine; the bounds here are only for sanity."""
    nodes = [ground.node(name) for name in "ab"]
    ground.start()
    cls = routing.storage_class()
    claim = routing.claim(cls, selected=nodes[0])
    routing.routed(claim, nodes[0])
    took = []
    for number in range(1, 11):
        node = nodes[number % 2]
        routing.select(claim, node)
        took.append(seconds_until(lambda node=node: routing.label(claim) == node, 60))
    print(f"one: {sorted(took)[5] * 1000:.0f} ms")
    assert sorted(took)[5] < 5 * speed.factor()


def test_two_hundred_at_once(ground: Ground, routing: Routing) -> None:
    node = ground.node()
    cls = routing.storage_class()
    claims = [
        routing.claim(cls, selected=node, provisioner=DYNAMIC_PROVISIONER, wait=False, adopt=False)
        for _ in range(200)
    ]
    names = {claim["metadata"]["name"] for claim in claims}

    def labelled() -> bool:
        query = f"{CLAIMS}?labelSelector={NODE_LABEL}%3D{node}"
        found = ground.plane.request("GET", query)["items"]
        return names <= {claim["metadata"]["name"] for claim in found}

    ground.start(wait=False)
    ground.until(lambda: ground.metric("localvolume_leader"), lambda value: value == 1)
    took = seconds_until(labelled, 120, pause=0.05)
    print(f"200: {took:.2f} s")
    ground.plane.request("DELETE", f"{CLAIMS}?labelSelector={NODE_LABEL}%3D{node}")
