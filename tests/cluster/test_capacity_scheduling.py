"""The real scheduler heeds the room that is published: no pod is sent to a node that is full."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from localvolume.volumes.capacity import GIB, MIB
from localvolume.volumes.marks import DYNAMIC_PROVISIONER
from localvolume_lab.controlplane import RequestFailed
from tests.cluster.support_capacity import Object, Publisher, publishing
from tests.cluster.support_objects import Objects
from tests.suite.api import CLAIMS, CLASSES, DRIVERS, PODS, VOLUMES
from tests.suite.names import SELECTED
from tests.suite.until import until

FULL = "did not have enough free storage"


class Cluster:
    """Two nodes, each with its publisher, and a class that waits for its first consumer."""

    def __init__(self, objects: Objects, unique: str, a: Publisher, b: Publisher) -> None:
        self.objects = objects
        self.cls = self.unique = unique
        self.a, self.b = a, b
        self._count = 0

    def pod(self, size: str, cls: str = "") -> str:
        """A pod with a claim of that size, for the nodes of this test; the name of both."""
        self._count += 1
        name = f"{self.unique}-{self._count}"
        claim = {
            "metadata": {"name": name},
            "spec": {
                "storageClassName": cls or self.cls,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
            },
        }
        pod = {
            "metadata": {"name": name},
            "spec": {
                "nodeSelector": {"test": self.unique},
                "containers": [{"name": "c", "image": "none"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}],
            },
        }
        self.objects.make(CLAIMS, claim)
        self.objects.make(PODS, pod)
        return name

    def selected(self, name: str) -> str:
        """The node that the scheduler has chosen for the claim, "" for none yet."""
        meta = self.objects.get(f"{CLAIMS}/{name}")["metadata"]
        return str(meta.get("annotations", {}).get(SELECTED, ""))

    def is_sent_to(self, name: str, node: str) -> None:
        assert until(lambda: self.selected(name), bool) == node

    def is_refused(self, name: str) -> None:
        """Wait until the scheduler has judged the claim: there is no room, and no node is chosen.

        It says something else while its informers have the pod, and not its claim or class yet.
        """
        until(lambda: (self.selected(name), self._said(name)), lambda one: one[0] or FULL in one[1])
        assert self.selected(name) == ""

    def _said(self, name: str) -> str:
        conditions = self.objects.get(f"{PODS}/{name}")["status"].get("conditions", [])
        return "".join(c.get("message", "") for c in conditions if c["type"] == "PodScheduled")

    def knows_of_no_room(self) -> None:
        """Wait until the scheduler knows what there is: that no pod can have a volume."""

        def refused() -> bool:
            name = self.pod("1Mi")
            word = str(until(lambda: self._said(name) or self.selected(name), bool))
            for path in (f"{PODS}/{name}", f"{CLAIMS}/{name}"):
                self.objects.plane.request("DELETE", path, {"gracePeriodSeconds": 0})
            return FULL in word

        until(refused, bool)


def make_class(objects: Objects, name: str) -> None:
    body = {
        "metadata": {"name": name},
        "provisioner": DYNAMIC_PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    objects.make(CLASSES, body)


@pytest.fixture
def cluster(objects: Objects, unique: str) -> Iterator[Cluster]:
    driver = {
        "metadata": {"name": DYNAMIC_PROVISIONER},
        "spec": {"storageCapacity": True, "attachRequired": False, "podInfoOnMount": False},
    }
    # A controller that ran in this control plane may have left its own.
    with contextlib.suppress(RequestFailed):
        objects.plane.request("DELETE", f"{DRIVERS}/{DYNAMIC_PROVISIONER}")
    objects.make(DRIVERS, driver)
    make_class(objects, unique)
    with contextlib.ExitStack() as stack:
        publishers = []
        for name in (f"{unique}-a", f"{unique}-b"):
            objects.plane.create_node(name, {"test": unique})
            objects.adopt(f"/api/v1/nodes/{name}")
            publishers.append(stack.enter_context(publishing(objects, name)))
        cluster = Cluster(objects, unique, *publishers)
        cluster.knows_of_no_room()
        yield cluster


def rooms(cluster: Cluster, a: int | tuple[int, ...], b: int | tuple[int, ...]) -> None:
    """Publish it, and wait until it is."""
    for publisher, room in ((cluster.a, a), (cluster.b, b)):
        publish(cluster, publisher, room)


def publish(cluster: Cluster, publisher: Publisher, room: int | tuple[int, ...]) -> None:
    before = publisher.found()
    publisher.update({cluster.cls: room})
    until(publisher.found, lambda found: found not in ([], before))


def bind(cluster: Cluster, name: str, node: str, size: str) -> Object:
    """Be the provisioner: a volume on that node, made for the claim."""
    claim = cluster.objects.get(f"{CLAIMS}/{name}")
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    body: dict[str, Any] = {
        "metadata": {"name": f"pvc-{claim['metadata']['uid']}"},
        "spec": {
            "storageClassName": cluster.cls,
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": f"/mnt/{name}"},
            "claimRef": {"namespace": "default", "name": name, "uid": claim["metadata"]["uid"]},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }
    return cluster.objects.make(VOLUMES, body)


def test_a_pod_goes_where_its_volume_fits(cluster: Cluster) -> None:
    """And stays there once the volume is made: the claim bound, the pod on its node."""
    rooms(cluster, GIB, 3 * GIB)
    for _ in range(3):
        name = cluster.pod("2Gi")
        cluster.is_sent_to(name, cluster.b.node)
    bind(cluster, name, cluster.b.node, "2Gi")
    placed = until(lambda: cluster.objects.get(f"{PODS}/{name}")["spec"].get("nodeName"), bool)
    assert placed == cluster.b.node


def test_what_fits_nowhere_waits_until_there_is_room(cluster: Cluster) -> None:
    rooms(cluster, GIB, 3 * GIB)
    name = cluster.pod("4Gi")
    cluster.is_refused(name)
    rooms(cluster, 5 * GIB, 3 * GIB + MIB)
    cluster.is_sent_to(name, cluster.a.node)


def test_two_pools_with_half_the_room_each_do_not_hold_the_whole(cluster: Cluster) -> None:
    """What counts is the largest, though they have 6Gi in all."""
    rooms(cluster, (2 * GIB, 2 * GIB, 2 * GIB), GIB)
    cluster.is_refused(cluster.pod("3Gi"))
    cluster.is_sent_to(cluster.pod("2Gi"), cluster.a.node)


def test_the_last_byte_that_is_published_is_given_and_no_more(cluster: Cluster) -> None:
    rooms(cluster, 7 * MIB + MIB - 1, 0)
    cluster.is_refused(cluster.pod(str(7 * MIB + 1)))
    cluster.is_sent_to(cluster.pod("7Mi"), cluster.a.node)


def test_a_node_whose_pool_has_a_problem_is_avoided(cluster: Cluster) -> None:
    rooms(cluster, 0, GIB)
    for _ in range(3):
        cluster.is_sent_to(cluster.pod("1Mi"), cluster.b.node)
    assert cluster.a.sizes() == {cluster.cls: ("0", "0")}


def test_a_class_without_any_object_here_gets_no_pod(cluster: Cluster) -> None:
    """As soon as a class or its last pool goes, the object goes, and nothing is sent here."""
    rooms(cluster, GIB, 0)
    make_class(cluster.objects, f"{cluster.cls}-other")
    cluster.is_refused(cluster.pod("1Mi", f"{cluster.cls}-other"))
    cluster.is_sent_to(cluster.pod("1Mi"), cluster.a.node)
    cluster.a.room()
    cluster.a.says()
    cluster.knows_of_no_room()
    publish(cluster, cluster.b, GIB)
    for _ in range(3):
        cluster.is_sent_to(cluster.pod("1Mi"), cluster.b.node)


def test_a_driver_that_does_not_tell_of_its_room_is_not_asked(
    cluster: Cluster, unique: str
) -> None:
    """What the CSIDriver is for: without it, the same objects count for nothing."""
    rooms(cluster, 0, 0)
    with contextlib.suppress(RequestFailed):
        cluster.objects.plane.request("DELETE", f"{DRIVERS}/{DYNAMIC_PROVISIONER}")

    def sent() -> str:
        name = cluster.pod("1Ti")
        return str(until(lambda: cluster.selected(name) or cluster._said(name), bool))

    until(sent, lambda word: word.startswith(unique))
