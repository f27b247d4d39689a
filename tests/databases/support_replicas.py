"""Replicas of a database on nodes of their own: drained, evicted, and made again elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.cluster.support_databases import evict, may_lose_one
from tests.databases.support_sets import Database, node_of
from tests.suite.api import CLAIMS, PODS, VOLUMES


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
    homes = [_home(database, number) for number in numbers]
    assert len({one.node for one in homes}) == len({one.volume for one in homes}) == len(homes)
    return homes


@contextlib.contextmanager
def drained(database: Database, homes: Sequence[Home], number: int) -> Iterator[None]:
    """Drain the replica's node as the page says, and have it back at the end: the replica is at
    home again. Meanwhile it waits, and no other replica may be evicted."""
    plane, node, before = database.plane, homes[number].node, database.uid(number)
    database.until(lambda: may_lose_one(plane, database.name))
    options = ["--ignore-daemonsets", "--delete-emptydir-data", "--timeout=170s"]
    plane.kubectl("drain", node, *options, timeout=180)
    database.until(lambda: database.why_it_waits(number), lambda said: "affinity" in said)
    assert not evict(plane, database.pod((number + 1) % database.replicas))
    yield
    plane.kubectl("uncordon", node)
    database.ready(number, other_than=before)
    assert _home(database, number) == homes[number]


def evict_next(database: Database, homes: Sequence[Home], number: int) -> None:
    """Evict the replica as soon as that is allowed, and wait until it is at home again."""
    before = database.uid(number)
    database.until(lambda: evict(database.plane, database.pod(number)))
    database.ready(number, other_than=before)
    assert _home(database, number) == homes[number]


def made_elsewhere(database: Database, homes: Sequence[Home], number: int) -> str:
    """Give up the replica of a lost node as the page says, and wait until it is made again, on the
    node that had none; returns the UID of its pod."""
    before, pod, kubectl = database.uid(number), database.pod(number), database.plane.kubectl
    kubectl("delete", "node", homes[number].node)
    kubectl("delete", "pvc", f"data-{pod}", "--wait=false")
    kubectl("delete", "pod", pod, "--force")
    made = database.ready(number, other_than=before)
    assert _home(database, number).node not in {one.node for one in homes}
    return made


def _home(database: Database, number: int) -> Home:
    plane, pod = database.plane, database.pod(number)
    node = plane.request("GET", f"{PODS}/{pod}")["spec"]["nodeName"]
    volume = plane.request("GET", f"{CLAIMS}/data-{pod}")["spec"]["volumeName"]
    assert node_of(plane.request("GET", f"{VOLUMES}/{volume}")) == node
    return Home(node, volume)
