"""Replicas of a database on nodes of their own: where they are, drained, lost and given up."""

from __future__ import annotations

import json
from dataclasses import dataclass

from localvolume_lab.controlplane import RequestFailed
from tests.databases.support_sets import Database, node_of
from tests.suite.api import CLAIMS, PODS, VOLUMES

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@dataclass(frozen=True)
class Home:
    """Where a replica is: a node, and a volume on just that node."""

    node: str
    volume: str


def come_up(database: Database) -> list[Home]:
    """Where the replicas are once all are ready: each on a node of its own."""
    numbers = range(database.replicas)
    for number in numbers:
        database.ready(number)
    homes = [home(database, number) for number in numbers]
    assert len({one.node for one in homes}) == len({one.volume for one in homes}) == len(homes)
    return homes


def home(database: Database, number: int) -> Home:
    plane, pod = database.plane, database.pod(number)
    node = plane.request("GET", f"{PODS}/{pod}")["spec"]["nodeName"]
    volume = plane.request("GET", f"{CLAIMS}/data-{pod}")["spec"]["volumeName"]
    assert node_of(plane.request("GET", f"{VOLUMES}/{volume}")) == node
    return Home(node, volume)


def drain(database: Database, number: int) -> str:
    """As the page says, the replica's node; once it is empty, the next pod waits.

    Returns the UID of the pod that went.
    """
    before = str(_pod(database, number)["uid"])
    node = home(database, number).node
    may_lose_one(database)
    options = ["--ignore-daemonsets", "--delete-emptydir-data", "--timeout=170s"]
    database.plane.kubectl("drain", node, *options, timeout=180)
    database.until(lambda: _why_it_waits(database, number), lambda said: "affinity" in said)
    return before


def uncordon(database: Database, node: str) -> None:
    database.plane.kubectl("uncordon", node)


def evict(database: Database, number: int) -> bool:
    """Whether a drain may take the pod from its node; it does."""
    name = database.pod(number)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    try:
        database.plane.request("POST", f"{PODS}/{name}/eviction", body)
    except RequestFailed as error:
        if error.status != 429:
            raise
        return False
    return True


def evict_next(database: Database, number: int) -> None:
    """Evict it as soon as that is allowed, and wait until it is back."""
    before = str(_pod(database, number)["uid"])
    database.until(lambda: evict(database, number))
    database.ready(number, other_than=before)


def give_up(database: Database, number: int, node: str) -> str:
    """As the page says of a lost node's replica; the UID of the pod that went."""
    before = str(_pod(database, number)["uid"])
    pod, kubectl = database.pod(number), database.plane.kubectl
    kubectl("delete", "node", node)
    kubectl("delete", "pvc", f"data-{pod}", "--wait=false")
    kubectl("delete", "pod", pod, "--force")
    return before


def may_lose_one(database: Database) -> None:
    """Wait until a drain may take the next one."""
    database.until(
        lambda: database.plane.request("GET", f"{BUDGETS}/{database.name}")["status"],
        lambda status: status.get("disruptionsAllowed") == 1,
    )


def _pod(database: Database, number: int) -> dict[str, object]:
    found: dict[str, object] = database.plane.request("GET", f"{PODS}/{database.pod(number)}")[
        "metadata"
    ]
    return found


def _why_it_waits(database: Database, number: int) -> str:
    """What the scheduler says of the replica's pod; "" where it has one that is placed, or none."""
    try:
        pod = database.plane.request("GET", f"{PODS}/{database.pod(number)}")
    except RequestFailed as error:
        if error.status != 404:
            raise
        return ""
    conditions = pod["status"].get("conditions", ())
    return json.dumps([one for one in conditions if one.get("reason") == "Unschedulable"])
