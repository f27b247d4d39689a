"""PostgreSQL with three replicas on volumes of ours: a drained node, and a lost primary."""

from __future__ import annotations

import pytest

from tests.cluster.support_objects import Objects
from tests.databases.support_ground import Ground
from tests.databases.support_images import provide
from tests.databases.support_postgres import (
    counted,
    insert,
    make_table,
    promote,
    set_for_good,
)
from tests.databases.support_replicas import come_up, drained, evict_next, made_elsewhere
from tests.databases.support_sets import Database, applied

pytestmark = [
    pytest.mark.databases,
    pytest.mark.needs("databases", "kubelet", "coredns", "loop", "ext4"),
]


def test_a_drained_replica_returns_and_a_lost_primary_is_made_again(
    joined: Ground, objects: Objects
) -> None:
    joined.give(provide("postgres"))
    with applied(joined, objects, "postgres", "256Mi") as postgres:
        homes = come_up(postgres)
        for number in range(3):
            # Nothing is acknowledged before a second one has it.
            set_for_good(postgres, number, "synchronous_standby_names", "ANY 1 (*)")
        make_table(postgres)
        insert(postgres, 0, 1000)
        everywhere(postgres, 1000)

        with drained(postgres, homes, 1):
            insert(postgres, 1000, 1000)
        everywhere(postgres, 2000)
        evict_next(postgres, homes, 2)

        insert(postgres, 2000, 1000)
        joined.lose(homes[0].node)
        primary = promote(postgres, [1, 2])
        assert counted(postgres, primary) == 3000
        insert(postgres, 3000, 1000, primary=primary)

        made_elsewhere(postgres, homes, 0)
        everywhere(postgres, 4000)
        insert(postgres, 4000, 1000, primary=primary)
        everywhere(postgres, 5000)


def everywhere(postgres: Database, rows: int) -> None:
    """Wait until each replica, asked itself, has so many."""
    postgres.until(
        lambda: [counted(postgres, number) for number in range(3)],
        lambda found: found == [rows] * 3,
    )
