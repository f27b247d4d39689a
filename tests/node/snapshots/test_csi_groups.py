"""A pod of a real kubelet on two volumes that are snapshotted and restored together.

The snapshot-controller is the real one, the scheduler sends the pods, and the pool's disk is an xfs
that shares blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.support_objects import Objects
from tests.node.support_csi import CsiGround
from tests.node.support_groups import PairTenant
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "loop", "ext4", "xfs", "snapshots")

#: As a database does with its log and its tables: what is in `second` was in `first` before, and
#: what comes next in `first` was in `second` before, on the disks.
_COUNTING = """
(
  count=0
  while [ ! -e /first/stop ]; do
    count=$((count + 1))
    for place in first second; do
      echo $count >> /$place/log && sync -f /$place/log || exit
    done
  done
  touch /first/stopped
) > /dev/null 2>&1 &
"""


@pytest.fixture
def pairs(ground: CsiGround, objects: Objects, unique: str) -> Iterator[list[PairTenant]]:
    """The first has its claims; who else is put in it, their pods go in the end as well."""
    first = PairTenant(ground, objects, unique)
    first.claims()
    made = [first]
    yield made
    for one in made:
        one.end_all()


def _numbers(pair: PairTenant, pod: str, name: str) -> list[int]:
    return [int(line) for line in pair.within(pod, f"cat /{name}/log").split()]


def test_a_pod_has_both_its_volumes_back_as_of_one_moment(
    pairs: list[PairTenant], ground: CsiGround
) -> None:
    (pair,) = pairs
    pod = pair.begin()
    pair.within(pod, _COUNTING)
    before = until(lambda: _numbers(pair, pod, "second"), lambda found: len(found) > 9)
    snapshots = pair.snapshots()
    # The writer goes on, on both.
    last = len(_numbers(pair, pod, "first"))
    until(lambda: _numbers(pair, pod, "second"), lambda found: len(found) > last)
    pair.within(pod, "touch /first/stop")
    # What it is at is written to the end: to files that are gone, it would make them anew.
    until(lambda: pair.within(pod, "ls /first").split(), lambda names: "stopped" in names)
    # The accident.
    pair.within(pod, "rm /first/log /second/log")
    restored = pair.restored(snapshots)
    pairs.append(restored)
    second = restored.begin()
    log, table = (_numbers(restored, second, name) for name in ("first", "second"))
    for found in (log, table):
        assert found == list(range(1, len(found) + 1))
    assert len(before) <= len(table) <= len(log) <= len(table) + 1
    assert len(log) <= last
    # They are volumes of their own: the others are as they were.
    restored.within(second, "echo 0 >> /first/log; echo 0 >> /second/log")
    assert pair.within(pod, "ls /first/log /second/log 2>/dev/null || true") == ""
    pair.end(pod)
    restored.end(second)
    pair.forget_snapshots()
    third = restored.begin()
    assert restored.within(third, "tail -qn 1 /first/log /second/log").split() == ["0", "0"]
    restored.end(third)
    for one in pairs:
        one.remove()
    pair.both[0].purged(ground.images)
