"""Cassandra with three replicas on volumes of ours: a drained node, and a lost seed."""

from __future__ import annotations

import pytest

from localvolume_lab.controlplane.kubectl import KubectlFailed
from tests.cluster.support_databases import may_lose_one
from tests.cluster.support_objects import Objects
from tests.databases.support_cassandra import (
    found,
    insert,
    make_table,
    members,
    remove_lost,
    repair,
    unseed,
)
from tests.databases.support_ground import Ground
from tests.databases.support_images import provide
from tests.databases.support_replicas import come_up, drained, made_elsewhere
from tests.databases.support_sets import Database, applied

pytestmark = [
    pytest.mark.databases,
    pytest.mark.needs("databases", "kubelet", "coredns", "loop", "ext4"),
]

#: It waits that long for what the others tell before it joins; 30 s otherwise.
SMALL = {"MAX_HEAP_SIZE": "384M", "JVM_EXTRA_OPTS": "-Dcassandra.ring_delay_ms=10000"}


def test_a_drained_replica_returns_and_a_lost_seed_is_made_again(
    joined: Ground, objects: Objects
) -> None:
    """The lost one is a seed, which would copy nothing before it serves: the new one is none."""
    joined.give(provide("cassandra"))
    with applied(joined, objects, "cassandra", "512Mi", environment=SMALL) as cassandra:
        homes = come_up(cassandra)
        make_table(cassandra, copies=3)
        insert(cassandra, 0, 0, 300)
        everywhere(cassandra, 300)

        with drained(cassandra, homes, 1):
            insert(cassandra, 0, 300, 300)
        everywhere(cassandra, 600)
        cassandra.until(lambda: may_lose_one(cassandra.plane, cassandra.name))

        insert(cassandra, 0, 600, 300)
        joined.lose(homes[0].node)
        # Until the others know, they wait for its answers.
        cassandra.until(lambda: answer(cassandra, 1, "QUORUM") == [*range(900)])
        remove_lost(cassandra, 1)
        insert(cassandra, 1, 900, 300)

        unseed(cassandra, "cassandra-1.cassandra")
        new = made_elsewhere(cassandra, homes, 0)
        # A seed would be as ready, and answer that there are no rows.
        assert found(cassandra, 0, level="ONE") == [*range(1200)]
        cassandra.until(lambda: sorted(members(cassandra, 1).values()) == ["UN"] * 3)
        repair(cassandra, 0)
        everywhere(cassandra, 1200)
        insert(cassandra, 0, 1200, 300)
        everywhere(cassandra, 1500)

        # It is a seed again, and nothing else changes.
        others = [cassandra.ready(number) for number in (1, 2)]
        cassandra.apply()
        cassandra.ready(0, other_than=new)
        assert [cassandra.ready(number) for number in (1, 2)] == others
        everywhere(cassandra, 1500)


def everywhere(cassandra: Database, rows: int) -> None:
    """Wait until each replica by itself has so many: what it missed, the others tell it later."""
    for number in range(3):
        cassandra.until(lambda number=number: answer(cassandra, number, "ONE") == [*range(rows)])


def answer(cassandra: Database, number: int, level: str) -> list[int] | None:
    """What a replica answers, by itself or with another; None as long as it does not."""
    try:
        return found(cassandra, number, level=level)
    except KubectlFailed:
        return None
