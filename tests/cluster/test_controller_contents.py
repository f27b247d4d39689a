"""Contents of snapshots whose node is lost: the controller tells of them, and touches none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_controller import Ground
from tests.cluster.support_snapshots import CONTENTS, kinds_of_snapshots, read
from tests.faults.support_proxy import Order, Proxy
from tests.suite.api import CLASSES
from tests.suite.names import CSI, NODE_LABEL

pytestmark = pytest.mark.needs("controlplane")

FINALIZER = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
LOST = "localvolume_lost_snapshot_contents"


@pytest.fixture
def kinds(control_plane: ControlPlane) -> Iterator[None]:
    with kinds_of_snapshots(control_plane):
        yield


def content(ground: Ground, suffix: str, node: str, driver: str = CSI) -> dict[str, Any]:
    body = {
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotContent",
        "metadata": {
            "name": f"{ground.unique}-{suffix}",
            "annotations": {NODE_LABEL: node} if node else {},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "driver": driver,
            "deletionPolicy": "Delete",
            "source": {"volumeHandle": "pvc-1"},
            "volumeSnapshotRef": {"namespace": "default", "name": suffix, "uid": suffix},
        },
    }
    made: dict[str, Any] = ground.plane.request("POST", CONTENTS, body)
    return made


def now(ground: Ground, made: dict[str, Any]) -> dict[str, Any] | None:
    found: dict[str, Any] | None = read(ground.plane, f"{CONTENTS}/{made['metadata']['name']}")
    return found


def use_the_driver(ground: Ground) -> None:
    name = f"{ground.unique}-csi"
    ground.plane.request("POST", CLASSES, {"metadata": {"name": name}, "provisioner": CSI})
    ground.adopt(f"{CLASSES}/{name}")


def test_a_content_of_a_lost_node_is_told_of_and_left_alone(ground: Ground, kinds: None) -> None:
    use_the_driver(ground)
    here, node = ground.node("here"), ground.node()
    ready, going = content(ground, "ready", node), content(ground, "going", node)
    others = [
        content(ground, "here", here),
        content(ground, "nobodys", ""),
        content(ground, "foreign", node, "other.example.com"),
    ]
    ground.plane.request("DELETE", f"{CONTENTS}/{going['metadata']['name']}")
    ground.start()
    assert ground.metric(LOST) == 0
    ground.remove_node(node)
    ground.event(ready, "ReferencedNodeDeleted", f"its node {node} is not there: no volume")
    ground.event(going, "ReferencedNodeDeleted", f"remove-finalizers --node {node}")
    ground.until(lambda: ground.metric(LOST), lambda count: count == 2)
    assert not any(ground.events(one) for one in others)
    for one in (ready, *others):
        found = now(ground, one)
        assert found is not None
        assert found["metadata"]["resourceVersion"] == one["metadata"]["resourceVersion"]
    left = now(ground, going)
    assert left is not None
    assert left["metadata"]["finalizers"] == [FINALIZER]
    # The node is there again, under its name.
    ground.plane.create_node(node)
    ground.until(lambda: ground.metric(LOST), lambda count: count == 0)


@pytest.mark.parametrize(
    ("verb", "resource"), [("list", "volumesnapshotcontents"), ("get", "nodes")]
)
def test_a_server_that_is_unwell_is_asked_again_when_it_says(
    ground: Ground, kinds: None, proxy: Proxy, verb: str, resource: str
) -> None:
    ground.until_others_are_gone()
    use_the_driver(ground)
    node = ground.node()
    content(ground, "ready", node)
    ground.remove_node(node)
    wait = 6
    order = Order(
        *("answer", (verb,), resource, 1, 503, "ServiceUnavailable"),
        headers={"Retry-After": str(wait)},
    )
    proxy.orders.append(order)
    ground.start(kubeconfig=proxy.kubeconfig)
    ground.until(lambda: ground.metric(LOST), lambda count: count == 1)
    assert order.met == 1
    asked = [one.at for one in proxy.seen if (one.verb, one.resource) == (verb, resource)]
    assert asked[1] - asked[0] >= wait
    (said,) = [line for line in ground.log() if "contents of lost nodes: " in line]
    assert "contents of lost nodes: contents of snapshots: " in said
    assert "503 ServiceUnavailable" in said
