"""Kafka with three replicas on volumes of ours: a drained node, and a lost leader."""

from __future__ import annotations

import pytest

from tests.cluster.support_objects import Objects
from tests.databases.support_ground import Ground
from tests.databases.support_images import provide
from tests.databases.support_kafka import (
    leader_and_in_sync,
    make_topic,
    received,
    send,
    stored,
)
from tests.databases.support_replicas import come_up, drained, evict_next, made_elsewhere
from tests.databases.support_sets import Database, applied

pytestmark = [
    pytest.mark.databases,
    pytest.mark.needs("databases", "kubelet", "coredns", "loop", "ext4"),
]


def test_a_drained_replica_returns_and_a_lost_leader_is_made_again(
    joined: Ground, objects: Objects
) -> None:
    joined.give(provide("kafka"))
    with applied(joined, objects, "kafka", "256Mi") as kafka:
        homes = come_up(kafka)
        make_topic(kafka, copies=3)
        send(kafka, 0, 0, 300)
        everywhere(kafka, 300)

        with drained(kafka, homes, 1):
            send(kafka, 0, 300, 300)
        everywhere(kafka, 600)
        evict_next(kafka, homes, 2)
        everywhere(kafka, 600)

        lost, _ = leader_and_in_sync(kafka, 0)
        assert lost is not None
        left = {0, 1, 2} - {lost}
        send(kafka, min(left), 600, 300)
        joined.lose(homes[lost].node)
        kafka.until(lambda: leader_and_in_sync(kafka, min(left))[0] in left)
        assert received(kafka, min(left)) == [*range(900)]
        send(kafka, min(left), 900, 300)

        made_elsewhere(kafka, homes, lost)
        everywhere(kafka, 1200)
        send(kafka, lost, 1200, 300)
        everywhere(kafka, 1500)


def everywhere(kafka: Database, messages: int) -> None:
    """Wait until all replicas are in sync; then each has so many in its own log."""
    kafka.until(lambda: leader_and_in_sync(kafka, 0)[1] == {0, 1, 2})
    for number in range(3):
        assert stored(kafka, number) == [*range(messages)]
