"""PostgreSQL on a volume of ours: it outlives its pod, a full disk, and a kill."""

from __future__ import annotations

import pytest

from tests.cluster.support_objects import Objects
from tests.databases.support_ground import Ground
from tests.databases.support_images import provide
from tests.databases.support_neighbour import neighbour
from tests.databases.support_postgres import count, counted, fill, insert, make_table
from tests.databases.support_sets import applied

pytestmark = [
    pytest.mark.databases,
    pytest.mark.needs("databases", "kubelet", "loop", "ext4", "xfs"),
]


@pytest.fixture(scope="module", autouse=True)
def image(ground: Ground) -> None:
    ground.give(provide("postgres"))


def test_rows_outlive_pod_and_process(ground: Ground, objects: Objects) -> None:
    with applied(ground, objects, "postgres", "256Mi", replicas=1) as postgres:
        postgres.ready(0)
        make_table(postgres)
        insert(postgres, 0, 1000)
        place = "/var/lib/postgresql/data"
        said = postgres.run(0, "sh", "-c", f"id -u; ls {place}; stat -c %A {place}/pgdata")
        assert said.split() == ["999", "lost+found", "pgdata", "drwx--S---"]

        postgres.made_again(0)
        assert count(postgres, 0) == 1000

        # Nobody writes a checkpoint: it recovers by its log.
        insert(postgres, 1000, 1000)
        postgres.kill(0)
        assert count(postgres, 0) == 2000


def test_a_full_volume_is_said_and_goes_on_once_it_is_grown(
    ground: Ground, objects: Objects
) -> None:
    """On xfs: an ext4 that is mounted grows only with a capability that tests may lack."""
    with (
        applied(ground, objects, "postgres", "320Mi", fs_type="xfs", replicas=1) as postgres,
        neighbour(ground.plane, "postgres", "postgres", "320Mi") as beside,
    ):
        postgres.ready(0)
        make_table(postgres)
        before = beside.write(64)
        rows, said = fill(postgres)
        assert rows > 0
        assert "No space left on device" in said + postgres.log(0)
        assert beside.read() == before
        assert beside.write(128) == beside.read() != before

        postgres.grow(0, "512Mi")
        assert postgres.until(lambda: counted(postgres, 0)) == rows
        assert postgres.free(0) > 100
        insert(postgres, rows, 5000, width=8192)
        assert count(postgres, 0) == rows + 5000
