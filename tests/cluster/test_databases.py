"""The StatefulSets of docs/databases.md, applied: replicas, volumes and nodes are as the page says.

Scheduler, StatefulSet controller, our controller and agents are real. No kubelet is there: that a
pod is ready is written by the test, and no database runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvolume_lab.controlplane import RequestFailed
from tests.cluster.support_controller import Ground
from tests.cluster.support_databases import SHOWN, evict, may_lose_one
from tests.cluster.support_dynamic import Claim
from tests.cluster.support_objects import Objects
from tests.cluster.support_scheduling import Cluster, cluster_for
from tests.suite.api import BUDGETS, CLAIMS, MERGE, PODS, SERVICES, SETS
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

Object = dict[str, Any]

SIZE = 8 * MIB
_KINDS = {"Service": SERVICES, "PodDisruptionBudget": BUDGETS, "StatefulSet": SETS}


class Database:
    """The objects of one block of the page in this test's cluster, small and on its nodes alone."""

    def __init__(self, cluster: Cluster, text: str, class_name: str) -> None:
        self.cluster = cluster
        self.plane = cluster.plane
        for body in yaml.safe_load_all(text):
            if body["kind"] == "StatefulSet":
                self.name = str(body["metadata"]["name"])
                self.replicas = int(body["spec"]["replicas"])
                self._small(body["spec"], class_name)
            cluster.objects.make(_KINDS[body["kind"]], body)

    def _small(self, spec: Object, class_name: str) -> None:
        spec["template"]["metadata"]["labels"]["test"] = self.cluster.unique
        spec["template"]["spec"]["nodeSelector"] = {"test": self.cluster.unique}
        for template in spec["volumeClaimTemplates"]:
            assert template["spec"]["storageClassName"] == "local"
            template["spec"]["storageClassName"] = class_name
            template["spec"]["resources"]["requests"]["storage"] = str(SIZE)

    def end(self) -> None:
        """Nothing makes pods or claims anew from now on, and those that are there go."""
        self.plane.request("DELETE", f"{SETS}/{self.name}", {"propagationPolicy": "Orphan"})
        # The next test's replicas have the same names, and would take a claim that is left.
        self.cluster.until(self._take_away, lambda left: not left)

    def _take_away(self) -> list[str]:
        """Have pods and claims go; returns which are still there."""
        left = [f"{SETS}/{self.name}"]
        for number in range(self.replicas):
            left += [f"{CLAIMS}/data-{self.pod(number)}", f"{PODS}/{self.pod(number)}"]
        left = [path for path in left if self.there(path)]
        for path in left:
            if not path.startswith(SETS):
                with contextlib.suppress(RequestFailed):  # gone meanwhile
                    self.plane.request("DELETE", path, {"gracePeriodSeconds": 0})
        return left

    def pod(self, number: int) -> str:
        return f"{self.name}-{number}"

    def claim(self, number: int) -> Claim:
        found: Claim = self.plane.request("GET", f"{CLAIMS}/data-{self.pod(number)}")
        return found

    def all_ready(self) -> None:
        """Wait until every replica was placed and, as its kubelet would say, is ready."""

        def ready() -> int:
            for number in range(self.replicas):
                self._say_ready(number)
            found = self.plane.request("GET", f"{SETS}/{self.name}")["status"]
            return int(found.get("readyReplicas", 0))

        self.cluster.until(ready, lambda ready: ready == self.replicas)

    def there(self, path: str) -> Object | None:
        try:
            found: Object = self.plane.request("GET", path)
        except RequestFailed as error:
            if error.status != 404:
                raise
            return None
        return found

    def is_anew(self, number: int, former: str) -> bool:
        """Whether claim and pod are there, and the claim is not the one of that UID."""
        claim = self.there(f"{CLAIMS}/data-{self.pod(number)}")
        pod = self.there(f"{PODS}/{self.pod(number)}")
        return bool(claim and pod and claim["metadata"]["uid"] != former)

    def why_it_waits(self, number: int) -> str:
        """What the scheduler says of the pod, once there is one that is not placed."""
        pod = self.there(f"{PODS}/{self.pod(number)}")
        return self.cluster.said(self.pod(number)) if pod else ""

    def _say_ready(self, number: int) -> None:
        pod = self.there(f"{PODS}/{self.pod(number)}")
        # One is made once the one before it is ready.
        if not pod or not pod["spec"].get("nodeName"):
            return
        if self.claim(number)["status"]["phase"] != "Bound":
            return
        conditions = [{"type": kind, "status": "True"} for kind in ("Ready", "PodScheduled")]
        status = {"phase": "Running", "conditions": conditions}
        path = f"{PODS}/{self.pod(number)}/status"
        self.plane.request("PATCH", path, {"status": status}, content_type=MERGE)

    def node_of(self, number: int) -> str:
        """Where the replica is, and its volume too."""
        lab = self.cluster.labs[self.cluster.placed(self.pod(number))]
        self.cluster.lives_on(self.claim(number), lab, self.pod(number))
        return lab.node

    def give_up(self, number: int) -> None:
        """As the page says of a lost replica: its claim, then its pod by force."""
        self.plane.request("DELETE", f"{CLAIMS}/data-{self.pod(number)}")
        self.cluster.remove_pod(self.pod(number))


@pytest.fixture
def cluster(ground: Ground, objects: Objects, unique: str, tmp_path: Path) -> Iterator[Cluster]:
    with cluster_for(ground, objects, unique, tmp_path) as cluster:
        for letter in "abcd":
            cluster.node(letter, 32 * MIB)
        yield cluster


@pytest.fixture(params=sorted(SHOWN))
def database(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Database]:
    class_name = cluster.storage_class()
    cluster.start()
    cluster.heeded(class_name)
    database = Database(cluster, SHOWN[request.param], class_name)
    yield database
    database.end()


def test_the_page_shows_three_databases() -> None:
    assert sorted(SHOWN) == ["cassandra.yaml", "kafka.yaml", "postgres.yaml"]


def test_each_replica_has_a_node_and_a_volume_of_its_own_and_is_made_again_elsewhere(
    cluster: Cluster, database: Database
) -> None:
    database.all_ready()
    nodes = [database.node_of(number) for number in range(database.replicas)]
    assert len(set(nodes)) == database.replicas == 3

    # A node that is lost: its pod cannot start elsewhere before somebody gives up its claim.
    lost = cluster.labs[nodes[0]]
    lost.stop()
    cluster.remove_node(lost)
    given_up = database.claim(0)["metadata"]["uid"]
    cluster.remove_pod(database.pod(0))
    cluster.until(
        lambda: database.why_it_waits(0), lambda said: "PersistentVolume's node affinity" in said
    )
    database.give_up(0)
    (spare,) = set(cluster.labs) - set(nodes)
    cluster.until(lambda: database.is_anew(0, given_up), bool)
    assert database.node_of(0) == spare

    # It comes back, and nobody wants its copy any more.
    lost.make_node({"test": cluster.unique})
    lost.start()
    old = f"pvc-{given_up}"
    cluster.until(
        lambda: [one["metadata"]["name"] for one in cluster.volumes()],
        lambda names: old not in names,
    )


def test_a_drain_waits_for_a_replica_before_it_takes_the_next(
    cluster: Cluster, database: Database
) -> None:
    database.all_ready()
    cluster.until(lambda: may_lose_one(cluster.plane, database.name), bool)
    assert evict(cluster.plane, database.pod(0))
    assert not evict(cluster.plane, database.pod(1))
