"""What keeps routing from acting on a picture that is wrong, and the rest going where it cannot."""

from __future__ import annotations

import time

import pytest

from localvolume.volumes.marks import DYNAMIC_PROVISIONER
from localvolume.volumes.moments import written
from tests.cluster.support_controller import Ground
from tests.cluster.support_routing import Routing
from tests.faults.support_proxy import Order, Proxy
from tests.suite.names import REFUSED, SELECTED

pytestmark = pytest.mark.needs("controlplane")


@pytest.fixture
def routing(ground: Ground) -> Routing:
    return Routing(ground)


def ready(ground: Ground) -> None:
    ground.until(lambda: ground.http("/ready"), lambda got: got == (200, "ok, leading\n"))


def test_a_node_that_no_watch_told_of(ground: Ground, routing: Routing, proxy: Proxy) -> None:
    """It joined a moment ago and was selected at once: it is asked for, found and routed to."""
    cls = routing.storage_class()
    proxy.orders.append(Order("silence", ("watch",), "nodes"))
    ground.start(kubeconfig=proxy.kubeconfig)
    node = ground.node("late")
    claim = routing.claim(cls, selected=node)
    routing.routed(claim, node)
    assert routing.notes(claim)[SELECTED] == node
    assert proxy.asked("nodes", "get") >= 1
    assert not ground.events(claim)


@pytest.mark.parametrize("mode", ["WaitForFirstConsumer", "Immediate"])
def test_a_node_that_cannot_be_asked_for_counts_as_there(
    ground: Ground, routing: Routing, proxy: Proxy, mode: str
) -> None:
    late = mode == "WaitForFirstConsumer"
    node, other = ground.node("a"), ground.node("b")
    cls = routing.storage_class(mode)
    routing.capacity(cls, node, "9Gi")
    routing.capacity(cls, other, "5Gi")
    ground.start(kubeconfig=proxy.kubeconfig)
    claim = routing.claim(cls, selected=node if late else None)
    routing.routed(claim, node)
    order = Order("answer", ("get",), "nodes", status=500)
    proxy.orders.append(order)
    ground.remove_node(node)
    ground.until(lambda: order.met, lambda met: met >= 3)
    assert routing.label(claim) == node
    assert (SELECTED in routing.notes(claim)) is late
    assert not ground.events(claim)
    assert order.met < 30
    proxy.orders.clear()
    routing.routed(claim, None if late else other)


def test_a_node_of_an_immediate_claim_that_no_watch_told_of(
    ground: Ground, routing: Routing, proxy: Proxy
) -> None:
    """Another leader knew of it: its agent may be making the volume."""
    other = ground.node("b")
    cls = routing.storage_class("Immediate")
    routing.capacity(cls, other, "9Gi")
    proxy.orders.append(Order("silence", ("watch",), "nodes"))
    ground.start(kubeconfig=proxy.kubeconfig)
    node = ground.node("late")
    claim = routing.claim(cls, label=node, provisioner=DYNAMIC_PROVISIONER)
    ground.until(lambda: proxy.asked("nodes", "get"), lambda count: count >= 2)
    assert routing.label(claim) == node


@pytest.mark.parametrize(
    "held", ["nodes", "persistentvolumeclaims", "storageclasses", "csistoragecapacities"]
)
def test_nothing_is_routed_before_all_is_known(
    ground: Ground, routing: Routing, proxy: Proxy, held: str
) -> None:
    node = ground.node()
    cls = routing.storage_class("Immediate")
    routing.capacity(cls, node, "9Gi")
    claims = [routing.claim(cls), routing.claim(cls, selected=node)]
    # Each of them: one that was held for too long is given up, and asked for again.
    order = Order("hold", ("list",), held)
    proxy.orders.append(order)
    ground.start(kubeconfig=proxy.kubeconfig, wait=False)
    ground.until(lambda: ground.metric("localvolume_leader"), lambda value: value == 1)
    status, text = ground.http("/ready")
    assert status == 500
    assert f"{held}: not all have been read yet" in text
    assert proxy.asked("persistentvolumeclaims", "patch") == 0
    order.release()
    for claim in claims:
        routing.routed(claim, node)
        assert not ground.events(claim)
    ready(ground)


def test_a_claim_that_changes_meanwhile(ground: Ground, routing: Routing, proxy: Proxy) -> None:
    """A label is written only where the selected node is still the one that it is for."""
    first, second = ground.node("a"), ground.node("b")
    cls = routing.storage_class()
    ground.start(kubeconfig=proxy.kubeconfig)
    # Each of them: one that was held for too long is given up, and tried again.
    held = Order("hold", ("patch",), "persistentvolumeclaims")
    proxy.orders.append(held)
    claim = routing.claim(cls, selected=first)
    ground.until(lambda: held.met, bool)
    routing.select(claim, second)
    held.release()
    routing.routed(claim, second)
    ground.until(lambda: held.answered, bool)
    routing.settle()
    assert routing.label(claim) == second
    held = Order("hold", ("patch",), "persistentvolumeclaims")
    proxy.orders[:] = [held]
    gone = f"{ground.unique}-gone"
    routing.select(claim, gone)
    ground.until(lambda: held.met, bool)
    routing.select(claim, first)
    held.release()
    routing.routed(claim, first)
    ground.until(lambda: held.answered, bool)
    routing.settle()
    assert routing.notes(claim)[SELECTED] == first
    assert not ground.events(claim)


def test_a_claim_that_is_made_anew_meanwhile(
    ground: Ground, routing: Routing, proxy: Proxy
) -> None:
    node = ground.node()
    cls = routing.storage_class()
    ground.start(kubeconfig=proxy.kubeconfig)
    held = Order("hold", ("patch",), "persistentvolumeclaims")
    proxy.orders.append(held)
    claim = routing.claim(cls, selected=node, provisioner=DYNAMIC_PROVISIONER)
    ground.until(lambda: held.met, bool)
    path = f"/api/v1/namespaces/default/persistentvolumeclaims/{claim['metadata']['name']}"
    ground.plane.request("DELETE", path)
    ground.until(lambda: routing.now(claim), lambda found: "uid" not in found["metadata"])
    body = {"metadata": {"name": claim["metadata"]["name"]}, "spec": claim["spec"]}
    body["spec"].pop("volumeName", None)
    ground.plane.request("POST", path.rpartition("/")[0], body)
    held.release()
    ground.until(lambda: held.answered, bool)
    routing.settle()
    assert routing.label(claim) is None


def test_what_it_may_not_write_is_said_and_harms_nothing(
    ground: Ground, routing: Routing, proxy: Proxy
) -> None:
    node = ground.node()
    volume = ground.volume(node)
    cls = routing.storage_class()
    order = Order("answer", ("patch",), "persistentvolumeclaims", status=403, reason="Forbidden")
    proxy.orders.append(order)
    ground.start(kubeconfig=proxy.kubeconfig)
    claim = routing.claim(cls, selected=node)
    ground.until(lambda: ground.http("/ready"), lambda got: got[0] == 500 and "routes: " in got[1])
    ground.remove_node(node)
    ground.marked(volume)
    ground.until(lambda: order.met, lambda met: met >= 3)
    assert order.met < 30
    assert ground.http("/healthz") == (200, "ok\n")
    proxy.orders.clear()
    routing.routed(claim, None)
    ready(ground)


@pytest.mark.parametrize(
    "resource", ["persistentvolumeclaims", "storageclasses", "csistoragecapacities"]
)
def test_what_it_may_not_read_is_said_and_harms_nothing(
    ground: Ground, routing: Routing, proxy: Proxy, resource: str
) -> None:
    node = ground.node()
    claim = routing.claim(routing.storage_class(), selected=node)
    order = Order("answer", ("list", "watch"), resource, status=403, reason="Forbidden")
    proxy.orders.append(order)
    ground.start(kubeconfig=proxy.kubeconfig, wait=False)
    ground.until(
        lambda: ground.http("/ready"),
        lambda got: got[0] == 500 and f"{resource}: ordered by the test" in got[1],
    )
    # Lost nodes are seen to all the same.
    ground.marked(ground.volume(f"{ground.unique}-nowhere"))
    assert routing.label(claim) is None
    proxy.orders.clear()
    routing.routed(claim, node)


def test_a_patch_whose_answer_is_lost(ground: Ground, routing: Routing, proxy: Proxy) -> None:
    node = ground.node()
    cls = routing.storage_class()
    ground.start(kubeconfig=proxy.kubeconfig)
    proxy.orders.append(Order("lose", ("patch",), "persistentvolumeclaims", times=2))
    claim = routing.claim(cls, selected=node)
    routing.routed(claim, node)
    routing.settle()
    assert routing.label(claim) == node


def test_what_it_knew_of_refusals_is_not_needed(ground: Ground, routing: Routing) -> None:
    """The next leader has the claim's own word for the last one."""
    nodes = [ground.node(name) for name in "ab"]
    cls = routing.storage_class("Immediate")
    routing.capacity(cls, nodes[0], "9Gi")
    routing.capacity(cls, nodes[1], "5Gi")
    claim = routing.claim(cls)
    routing.change(claim, {REFUSED: f"{nodes[0]} {written(time.time())}"})
    ground.start()
    routing.routed(claim, nodes[1])
