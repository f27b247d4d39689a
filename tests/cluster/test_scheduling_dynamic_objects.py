"""What is published of a node's room goes with the class, with the pool, and with the Node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.dynamic.paces import CapacityPaces
from tests.cluster.support_controller import Ground
from tests.cluster.support_dynamic import DynamicLab
from tests.cluster.support_objects import Objects
from tests.cluster.support_scheduling import Cluster, cluster_for
from tests.suite.api import CLASSES
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

SMALL = 32 * MIB


@pytest.fixture
def cluster(ground: Ground, objects: Objects, unique: str, tmp_path: Path) -> Iterator[Cluster]:
    with cluster_for(ground, objects, unique, tmp_path) as cluster:
        for letter in "ab":
            cluster.node(letter, SMALL)
        yield cluster


def _published(cluster: Cluster) -> set[tuple[str, str]]:
    """Node and class of each object."""
    return {
        (there["metadata"]["labels"]["localvolume.dev/node"], there["storageClassName"])
        for there in cluster.capacities()
    }


def test_they_go_with_the_class_on_every_node(cluster: Cluster) -> None:
    a, b = cluster.labs
    one, two = cluster.storage_class("one"), cluster.storage_class("two", waits=False)
    for lab in cluster.labs.values():
        lab.start()
    all_ = {(a, one), (a, two), (b, one), (b, two)}
    cluster.until(lambda: _published(cluster), lambda found: found == all_)
    cluster.plane.request("DELETE", f"{CLASSES}/{one}")
    cluster.until(lambda: _published(cluster), lambda found: found == {(a, two), (b, two)})


def test_they_go_with_the_pool_and_come_back_with_it(cluster: Cluster) -> None:
    a, b = cluster.labs.values()
    cls = cluster.storage_class()
    for lab in (a, b):
        lab.start()
    both = {(a.node, cls), (b.node, cls)}
    cluster.until(lambda: _published(cluster), lambda found: found == both)
    pools = a.settings["pools"]
    a.settings["pools"] = {}
    a.configure()
    cluster.until(lambda: _published(cluster), lambda found: found == {(b.node, cls)})
    a.settings["pools"] = pools
    a.configure()
    cluster.until(lambda: _published(cluster), lambda found: found == both)


def test_they_go_with_the_node_and_are_not_made_anew(cluster: Cluster) -> None:
    """The garbage collector takes them, though the agent still runs; a new Node has its own."""
    a, b = cluster.labs.values()
    cls = cluster.storage_class()
    for lab in (a, b):
        lab.hurry_dynamic(capacities=CapacityPaces(between=0.1))
        lab.start()
    both = {(a.node, cls), (b.node, cls)}
    cluster.until(lambda: _published(cluster), lambda found: found == both)
    cluster.remove_node(a)
    cluster.until(lambda: _published(cluster), lambda found: found == {(b.node, cls)})
    # Once each of its roles has seen it go.
    a.until(lambda: sum("there is no Node" in line for line in a.log()), lambda roles: roles == 2)

    def rests() -> bool:
        """What it had begun by then ends, and then there is no more."""
        made_by_then = _made(a)
        time.sleep(1)
        return _made(a) == made_by_then

    cluster.until(rests, bool)
    # What was made too late has no owner: it goes when the garbage collector gets to it.
    cluster.until(lambda: _published(cluster), lambda found: found == {(b.node, cls)})
    node = cluster.plane.create_node(a.node, {"test": cluster.unique})
    cluster.until(lambda: _published(cluster), lambda found: found == both)
    (there,) = cluster.capacities(a.node)
    owners = [owner["uid"] for owner in there["metadata"]["ownerReferences"]]
    assert owners == [node["metadata"]["uid"]]


def _made(lab: DynamicLab) -> float:
    """How often the agent has made such an object."""
    what = {"verb": "create", "resource": "csistoragecapacities", "outcome": "ok"}
    return lab.metric("localvolume_api_requests_total", **what) or 0
