"""Pods of a real kubelet on volumes that are snapshotted, restored and cloned.

The snapshot-controller is the real one, the scheduler sends the pods, and the pool's disk is an xfs
that shares blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.support_objects import Objects
from tests.node.support_csi import CsiGround
from tests.node.support_snapshots import SnapshotTenant
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "loop", "ext4", "xfs", "snapshots")

#: What is in `second` has been in `first` before, on the disk.
_COUNTING = """
(
  count=0
  while [ ! -e /data/stop ]; do
    count=$((count + 1))
    echo $count >> /data/first && sync -f /data/first && echo $count >> /data/second
  done
) > /dev/null 2>&1 &
"""


@pytest.fixture
def tenants(ground: CsiGround, objects: Objects, unique: str) -> Iterator[list[SnapshotTenant]]:
    """The first has a class; who else is put in it, their pods go in the end as well."""
    first = SnapshotTenant(ground, objects, unique)
    first.csi_class()
    made = [first]
    yield made
    for one in made:
        one.end_all()


def _all_gone(tenants: list[SnapshotTenant]) -> None:
    """Without the claims, nothing is left of any on the node."""
    for one in tenants:
        one.unmounted()
        one.remove()
    tenants[0].purged(tenants[0].ground.images)


def _numbers(tenant: SnapshotTenant, pod: str, name: str) -> list[int]:
    return [int(line) for line in tenant.within(pod, f"cat /data/{name}").split()]


def test_what_a_pod_deleted_the_next_one_reads_in_the_restored_claim(
    tenants: list[SnapshotTenant],
) -> None:
    (tenant,) = tenants
    tenant.claim()
    pod = tenant.begin()
    tenant.within(pod, "mkdir /data/more && echo precious > /data/more/file && chmod 750 /data")
    assert tenant.snapshot()["status"]["restoreSize"] == "32Mi"
    tenant.within(pod, "rm -r /data/more && echo other > /data/file")
    restored = tenant.restored()
    tenants.append(restored)
    # Before any pod asks for it, and it is of WaitForFirstConsumer.
    restored.bound()
    second = restored.begin()
    assert restored.within(second, "cat /data/more/file") == "precious"
    assert restored.within(second, "stat -c %a /data; ls /data | grep -v lost") == "750\nmore"
    # Both are mounted at the same time, and each is its own.
    restored.within(second, "echo new > /data/more/file")
    assert tenant.within(pod, "ls /data | grep -v lost; cat /data/file") == "file\nother"
    tenant.end(pod)
    restored.end(second)
    tenant.forget_snapshot()
    assert restored.run("cat /data/more/file") == "new"
    _all_gone(tenants)


def test_a_larger_claim_is_restored_with_its_whole_size(tenants: list[SnapshotTenant]) -> None:
    (tenant,) = tenants
    tenant.claim()
    tenant.run("echo small > /data/file")
    tenant.snapshot()
    restored = tenant.restored(resources={"requests": {"storage": "96Mi"}})
    tenants.append(restored)
    table, said = restored.run("df -k /data | tail -n 1; cat /data/file").splitlines()
    assert abs(int(table.split()[1]) * 1024 / (96 * MIB) - 1) < 0.15
    assert said == "small"
    tenant.forget_snapshot()
    _all_gone(tenants)


def test_a_device_is_restored(tenants: list[SnapshotTenant]) -> None:
    (tenant,) = tenants
    tenant.claim(volumeMode="Block")
    write = "printf {} | dd of=/dev/data conv=fsync 2>/dev/null"
    tenant.run(write.format("before"), block=True)
    tenant.snapshot()
    tenant.run(write.format("beyond"), block=True)
    restored = tenant.restored(volumeMode="Block")
    tenants.append(restored)
    assert restored.run("head -c 6 /dev/data", block=True) == "before"
    assert tenant.run("head -c 6 /dev/data", block=True) == "beyond"
    tenant.forget_snapshot()
    _all_gone(tenants)


def test_a_claim_is_cloned_while_its_pod_writes(tenants: list[SnapshotTenant]) -> None:
    """The clone has one moment of it, which the writer's order shows; the writer goes on."""
    (tenant,) = tenants
    tenant.claim()
    pod = tenant.begin()
    tenant.within(pod, _COUNTING)
    before = until(lambda: _numbers(tenant, pod, "second"), lambda found: len(found) > 9)
    cloned = tenant.cloned()
    tenants.append(cloned)
    cloned.bound()
    second = cloned.begin()
    first, later = _numbers(cloned, second, "first"), _numbers(cloned, second, "second")
    for found in (first, later):
        assert found == list(range(1, len(found) + 1))
    assert len(before) <= len(later) <= len(first)
    until(lambda: _numbers(tenant, pod, "second"), lambda found: len(found) > len(first))
    assert _numbers(cloned, second, "first") == first
    tenant.within(pod, "touch /data/stop")
    for one, name in ((tenant, pod), (cloned, second)):
        one.end(name)
    _all_gone(tenants)


def test_the_kubelet_is_restarted_while_a_pod_starts_on_a_restored_volume(
    tenants: list[SnapshotTenant],
) -> None:
    (tenant,) = tenants
    tenant.claim()
    tenant.run("echo before > /data/file")
    tenant.snapshot()
    restored = tenant.restored()
    tenants.append(restored)
    pod = restored.ask_to_begin()
    tenant.ground.node.restart_kubelet()
    restored.begun(pod)
    assert restored.within(pod, "cat /data/file && echo after > /data/file") == "before"
    restored.end(pod)
    assert restored.run("cat /data/file") == "after"
    tenant.forget_snapshot()
    _all_gone(tenants)


def test_the_agent_dies_between_a_snapshot_and_its_restore(tenants: list[SnapshotTenant]) -> None:
    (tenant,) = tenants
    tenant.claim()
    tenant.run("echo before > /data/file")
    tenant.snapshot()
    tenant.run("rm /data/file")
    tenant.ground.kill_agent()
    restored = tenant.restored()
    tenants.append(restored)
    pod = restored.ask_to_begin()
    assert restored.phase() == "Pending"
    tenant.ground.start_agent()
    restored.begun(pod)
    assert restored.within(pod, "cat /data/file") == "before"
    restored.end(pod)
    tenant.forget_snapshot()
    _all_gone(tenants)
