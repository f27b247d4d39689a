"""What keeps the controller from acting on a picture that is wrong: each guard by itself.

A proxy between it and the real API server holds answers back, refuses, or keeps silent. What is
held is held however often it is asked for: no answer is waited for longer than 30 s.
"""

import pytest

from tests.cluster.support_controller import Ground, Volume
from tests.faults.support_proxy import Order, Proxy
from tests.suite.api import CLAIMS, VOLUMES
from tests.suite.names import FINALIZER, HOSTNAME

pytestmark = pytest.mark.needs("controlplane")

WRITES = ("post", "patch", "delete")


@pytest.fixture(autouse=True)
def nothing_is_going(ground: Ground) -> None:
    ground.until_others_are_gone()


@pytest.mark.parametrize("held", ["nodes", "persistentvolumes"])
def test_nothing_is_judged_before_all_is_known(ground: Ground, proxy: Proxy, held: str) -> None:
    """Upstream acts on an empty list of nodes when it starts (defect 7)."""
    node = ground.node()
    volume, used = ground.volume(node), ground.volume(node)
    claim = ground.bound(used)
    order = Order("hold", ("list",), held)
    proxy.orders.append(order)
    ground.start(ground.cls, kubeconfig=proxy.kubeconfig, wait=False)
    ground.until(lambda: ground.metric("localvolume_leader"), lambda value: value == 1)
    status, text = ground.http("/ready")
    assert status == 500
    assert f"{held}: not all have been read yet" in text
    order.release()
    ground.until(lambda: ground.http("/ready"), lambda got: got[0] == 200)
    ground.settle()
    ours = {volume["metadata"]["name"], used["metadata"]["name"]}
    assert not [line for line in ground.log() if any(name in line for name in ours)]
    ground.stays(volume, used, claim)
    assert ground.mark(volume) is ground.mark(used) is None
    assert proxy.asked("persistentvolumes", "delete") == 0
    assert proxy.asked("persistentvolumeclaims", *WRITES) == 0


@pytest.mark.parametrize("how", ["name", "hostname"])
def test_a_node_that_no_watch_told_of(ground: Ground, proxy: Proxy, how: str) -> None:
    """Made again in the moment between the decision and the deletion: asked for once more."""
    node = f"{ground.unique}-node"
    used, unused = ground.volume(node), ground.volume(node)
    claim = ground.bound(used)
    proxy.orders.append(Order("silence", ("watch",), "nodes"))
    marks = Order("hold", ("patch",), "persistentvolumes")
    proxy.orders.append(marks)
    ground.start(ground.cls, kubeconfig=proxy.kubeconfig)
    ground.until(lambda: proxy.asked("persistentvolumes", "patch"), lambda count: count >= 2)
    before = proxy.asked("nodes", "get")
    ground.node("node" if how == "name" else "other", {HOSTNAME: node})
    marks.release()
    ground.marked(used)
    ground.marked(unused)
    ground.until(lambda: proxy.asked("nodes", "get"), lambda count: count >= before + 4)
    ground.stays(used, unused, claim)
    assert proxy.asked("persistentvolumes", "delete") == 0
    assert proxy.asked("persistentvolumeclaims", "delete") == 0
    # Once the watch tells of it, it has returned.
    proxy.orders.clear()
    proxy.cut_watches()
    ground.stop()
    ground.start(ground.cls, kubeconfig=proxy.kubeconfig)
    ground.until(lambda: [ground.mark(used), ground.mark(unused)], lambda m: m == [None, None])


def test_what_is_going_is_held_for_a_node_that_no_watch_told_of(
    ground: Ground, proxy: Proxy
) -> None:
    """Let go, it would be nobody's to clean on the node that has it."""
    volume = ground.volume(f"{ground.unique}-node")
    ground.plane.request("DELETE", f"{VOLUMES}/{volume['metadata']['name']}")
    # Kubernetes takes its own finalizer away. Were that later, the mark that is held would be
    # refused, and with the node there it would not be tried again.
    ground.until(
        lambda: (ground.again(volume) or {"metadata": {}})["metadata"].get("finalizers"),
        lambda left: left == [FINALIZER],
    )
    mark = Order("hold", ("patch",), "persistentvolumes")
    proxy.orders += [Order("silence", ("watch",), "nodes"), mark]
    ground.start(ground.cls, kubeconfig=proxy.kubeconfig)
    ground.until(lambda: mark.met, bool)
    before = proxy.asked("nodes", "get")
    ground.node("node")
    mark.release()

    def judged_again() -> bool:
        return proxy.asked("nodes", "get") >= before + 2 or ground.again(volume) is None

    ground.until(judged_again, bool)
    assert ground.again(volume) is not None
    assert ground.mark(volume) is not None


def test_a_new_node_that_no_watch_told_of_is_not_said_to_be_lost(
    ground: Ground, proxy: Proxy
) -> None:
    """Its volumes are known before it is: their owners must not be alarmed."""
    proxy.orders.append(Order("silence", ("watch",), "nodes"))
    ground.start(ground.cls, kubeconfig=proxy.kubeconfig)
    volume = ground.volume(ground.node())
    ground.until(lambda: proxy.asked("nodes", "get"), lambda count: count >= 2)
    assert ground.mark(volume) is None
    ground.stays(volume)
    assert ground.events(volume) == []


@pytest.mark.parametrize(("verb", "status"), [("get", 500), ("list", 403)])
def test_a_node_that_cannot_be_asked_for_counts_as_there(
    ground: Ground, proxy: Proxy, verb: str, status: int
) -> None:
    node = ground.node()
    used, unused = ground.volume(node), ground.volume(node)
    claim = ground.bound(used)
    ground.start(ground.cls, kubeconfig=proxy.kubeconfig)
    order = Order("answer", (verb,), "nodes", status=status, reason="ordered")
    proxy.orders.append(order)
    ground.remove_node(node)
    ground.until(lambda: order.met, lambda met: met >= 8)
    ground.are_kept(used, unused, claim)
    assert ground.mark(used) is ground.mark(unused) is None
    assert proxy.asked("persistentvolumes", "delete") == 0
    assert proxy.asked("persistentvolumeclaims", "delete") == 0
    proxy.orders.clear()
    ground.gone(claim)
    ground.gone(unused)


def test_a_volume_that_is_bound_while_it_is_being_deleted(ground: Ground, proxy: Proxy) -> None:
    node = ground.node()
    volume = ground.volume(node)
    ground.start(ground.cls, claim_delay=3600, kubeconfig=proxy.kubeconfig)
    held = Order("hold", ("delete",), "persistentvolumes")
    proxy.orders.append(held)
    ground.remove_node(node)
    ground.until(lambda: held.met, bool)
    claim = ground.bound(volume)
    ground.until(ground.lost, lambda lost: lost == {"waiting": 1})
    held.release()
    ground.until(lambda: held.answered, bool)
    ground.stays(volume, claim)


def test_a_claim_that_is_made_anew_while_it_is_being_deleted(ground: Ground, proxy: Proxy) -> None:
    node = ground.node()
    volume: Volume = ground.volume(node, policy="Retain")
    claim = ground.bound(volume)
    ground.start(ground.cls, kubeconfig=proxy.kubeconfig)
    held = Order("hold", ("delete",), "persistentvolumeclaims")
    proxy.orders.append(held)
    ground.remove_node(node)
    ground.until(lambda: held.met, bool)
    name = claim["metadata"]["name"]
    ground.plane.request("DELETE", f"{CLAIMS}/{name}")
    ground.gone(claim)
    body = {"metadata": {"name": name}, "spec": {**claim["spec"], "volumeName": ""}}
    anew = ground.plane.request("POST", CLAIMS, body)
    held.release()
    ground.until(lambda: held.answered, bool)
    ground.until(lambda: [s for s in ground.log() if "tried" in s or "UID" in s], bool)
    ground.stays(anew)


def test_what_it_may_not_do_is_said_and_harms_nothing(ground: Ground, proxy: Proxy) -> None:
    node = ground.node()
    volume = ground.volume(node)
    ground.start(ground.cls, kubeconfig=proxy.kubeconfig)
    order = Order("answer", WRITES, "persistentvolumes", status=403, reason="Forbidden")
    proxy.orders.append(order)
    ground.remove_node(node)
    ground.until(lambda: ground.http("/ready"), lambda got: got[0] == 500 and "acts: " in got[1])
    assert ground.http("/healthz") == (200, "ok\n")
    ground.until(lambda: order.met, lambda met: met >= 3)
    assert order.met < 30
    proxy.orders.clear()
    ground.gone(volume)
    ground.until(lambda: ground.http("/ready"), lambda got: got[0] == 200)


@pytest.mark.parametrize("resource", ["nodes", "persistentvolumes"])
def test_what_it_may_not_read_is_said_and_harms_nothing(
    ground: Ground, proxy: Proxy, resource: str
) -> None:
    node = ground.node()
    volume = ground.volume(node)
    order = Order("answer", ("list", "watch"), resource, status=403, reason="Forbidden")
    proxy.orders.append(order)
    ground.start(ground.cls, kubeconfig=proxy.kubeconfig, wait=False)
    ground.until(
        lambda: ground.http("/ready"),
        lambda got: got[0] == 500 and f"{resource}: ordered by the test" in got[1],
    )
    ground.until(lambda: order.met, lambda met: met >= 3)
    assert ground.http("/healthz") == (200, "ok\n")
    assert ground.mark(volume) is None
    proxy.orders.clear()
    ground.until(lambda: ground.http("/ready"), lambda got: got[0] == 200)
    ground.stays(volume)


def test_a_lease_that_it_may_not_write_is_said(ground: Ground, proxy: Proxy) -> None:
    """Without it nobody leads, and nothing is done: that must not look like standing by."""
    volume = ground.volume(f"{ground.unique}-gone")
    proxy.orders.append(Order("answer", ("post", "patch"), "leases", status=403))
    ground.start(ground.cls, kubeconfig=proxy.kubeconfig, wait=False)
    ground.until(lambda: ground.http("/ready"), lambda got: got[0] == 500 and "lease: " in got[1])
    assert ground.http("/healthz") == (200, "ok\n")
    assert ground.mark(volume) is None
    proxy.orders.clear()
    ground.gone(volume)
    ground.until(lambda: ground.http("/ready"), lambda got: got == (200, "ok, leading\n"))


def test_failed_deletions_are_counted_and_tried_again(ground: Ground, proxy: Proxy) -> None:
    node = ground.node()
    used, unused = ground.volume(node), ground.volume(node)
    claim = ground.bound(used)
    ground.start(ground.cls, kubeconfig=proxy.kubeconfig)
    for resource in ("persistentvolumes", "persistentvolumeclaims"):
        proxy.orders.append(Order("answer", ("delete",), resource, times=2))
    ground.remove_node(node)
    ground.gone(claim)
    ground.gone(unused)
    prefix = "local_volume_node_cleanup_persistentvolume"
    assert ground.metric(f"{prefix}claim_delete_failed_total") == 2
    assert ground.metric(f"{prefix}_delete_failed_total", phase="Available") == 2
    # What is gone is counted when the answer to its deletion comes.
    ground.until(lambda: ground.metric(f"{prefix}claim_delete_total"), lambda n: n == 1)
    gone = f"{prefix}_delete_total"
    ground.until(lambda: ground.metric(gone, phase="Available"), lambda n: n == 1)


def test_a_deletion_whose_answer_is_lost(ground: Ground, proxy: Proxy) -> None:
    """Done, but nobody told us: found out, finished, and no failure."""
    node = ground.node()
    unused = ground.volume(node)
    proxy.orders.append(Order("lose", ("delete",), "persistentvolumes", times=1))
    proxy.orders.append(Order("lose", ("patch",), "persistentvolumes", times=2))
    ground.start(ground.cls, kubeconfig=proxy.kubeconfig)
    ground.remove_node(node)
    ground.gone(unused)
    ground.until(lambda: ground.get(VOLUMES, unused["metadata"]["name"]), lambda v: v is None)
    ground.until(ground.lost, lambda lost: lost == {})
