"""Cassandra on a volume of ours: its rows outlive pod and process."""

from __future__ import annotations

import pytest

from tests.cluster.support_objects import Objects
from tests.databases.support_cassandra import found, insert, make_table
from tests.databases.support_ground import Ground
from tests.databases.support_images import provide
from tests.databases.support_sets import applied

pytestmark = [
    pytest.mark.databases,
    pytest.mark.needs("databases", "kubelet", "loop", "ext4"),
]

#: Its own name is all that it can look up without others.
ALONE = {"CASSANDRA_SEEDS": "cassandra-0", "MAX_HEAP_SIZE": "384M"}


@pytest.fixture(scope="module", autouse=True)
def image(ground: Ground) -> None:
    ground.give(provide("cassandra"))


def test_rows_outlive_pod_and_process(ground: Ground, objects: Objects) -> None:
    with applied(ground, objects, "cassandra", "512Mi", replicas=1, environment=ALONE) as cassandra:
        cassandra.ready(0)
        make_table(cassandra, copies=1)
        insert(cassandra, 0, 0, 300)
        said = cassandra.run(0, "sh", "-c", "id -u; ls /var/lib/cassandra")
        assert {"999", "commitlog", "data", "lost+found"} <= set(said.split())

        # It writes all out before it ends.
        cassandra.made_again(0)
        assert found(cassandra, 0) == [*range(300)]

        # Killed, it has not: the last rows are only in its log on the volume.
        insert(cassandra, 0, 300, 300)
        cassandra.kill(0)
        assert found(cassandra, 0) == [*range(600)]
