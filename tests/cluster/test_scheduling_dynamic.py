"""Claims of pods: the real scheduler chooses a node by what agents publish, and never overfills it.

From pod and claim to a volume on the node of the pod: scheduler, controller, agents, all real.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.support_controller import Ground
from tests.cluster.support_dynamic import DynamicLab
from tests.cluster.support_objects import Objects
from tests.cluster.support_scheduling import FULL, Cluster, cluster_for, node_of
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

SMALL, LARGE = 32 * MIB, 96 * MIB


@pytest.fixture
def cluster(ground: Ground, objects: Objects, unique: str, tmp_path: Path) -> Iterator[Cluster]:
    with cluster_for(ground, objects, unique, tmp_path) as cluster:
        yield cluster


def _pool(lab: DynamicLab) -> Path:
    return lab.directory / "pool-fast"


def _heeds_that_none_fits(cluster: Cluster, class_name: str, size: int) -> None:
    """Wait until the scheduler heeds that no node has room for that: it learns of what is published
    by a watch of its own, and may send a first claim to a node that is full by now."""
    probe = cluster.claim(class_name, size)
    pod = cluster.pod(probe)
    cluster.until(lambda: cluster.said(pod), lambda text: FULL in text)
    cluster.remove_pod(pod)
    cluster.remove_claim(probe)


def test_a_pod_gets_its_volume_on_the_node_that_was_chosen_for_it(cluster: Cluster) -> None:
    """And a claim without a pod gets none."""
    nodes = [cluster.node("a", SMALL), cluster.node("b", SMALL)]
    cls = cluster.storage_class()
    cluster.start()
    cluster.heeded(cls)
    alone = cluster.claim(cls, 8 * MIB)
    claims = [cluster.claim(cls, 8 * MIB) for _ in nodes]
    pods = [cluster.pod(claim, on=lab) for claim, lab in zip(claims, nodes, strict=True)]
    for lab, claim, pod in zip(nodes, claims, pods, strict=True):
        cluster.lives_on(claim, lab, pod)
        assert cluster.selected(claim) == lab.node
    cluster.pending(alone)
    assert cluster.label(alone) is None
    assert len(cluster.volumes()) == 2


def test_what_is_too_large_for_one_node_goes_to_another(cluster: Cluster) -> None:
    """Though the pod would rather be on the first: nobody has to give the claim back."""
    a, b = cluster.node("a", SMALL), cluster.node("b", LARGE)
    cls = cluster.storage_class()
    cluster.start()
    full = cluster.heeded(cls)
    fits = cluster.claim(cls, full[a.node])
    larger = cluster.claim(cls, full[a.node] + 1)
    pods = [cluster.pod(claim, rather=a.node) for claim in (fits, larger)]
    for claim, lab, pod in zip((fits, larger), (a, b), pods, strict=True):
        cluster.lives_on(claim, lab, pod)
        assert cluster.refused(claim) == ""
        assert cluster.events(claim, "ProvisioningFailed") == []
    cluster.none_overfull()


def test_what_fits_nowhere_waits_until_another_claim_goes(cluster: Cluster) -> None:
    a, b = cluster.node("a", SMALL), cluster.node("b", LARGE)
    cls = cluster.storage_class()
    cluster.start()
    full = cluster.heeded(cls)
    holders = {}
    for lab in (a, b):
        # What is kept for root no tenant can write: it is no room.
        disk = os.statvfs(_pool(lab))
        most = (disk.f_blocks - disk.f_bfree + disk.f_bavail) * disk.f_frsize
        assert lab.metric("localvolume_pool_size_bytes", pool="fast") == most
        claim = cluster.claim(cls, full[lab.node] - 4 * MIB)
        holders[lab.node] = claim, cluster.pod(claim, on=lab)
        cluster.lives_on(claim, lab)
    cluster.until(lambda: max(cluster.rooms(cls).values()), lambda room: room <= 4 * MIB)
    _heeds_that_none_fits(cluster, cls, 8 * MIB)
    waiting = cluster.claim(cls, 8 * MIB)
    pod = cluster.pod(waiting)
    cluster.until(lambda: cluster.said(pod), lambda text: FULL in text)
    cluster.pending(waiting)
    assert cluster.selected(waiting) == ""
    claim, other = holders[a.node]
    old = cluster.bound(claim)
    cluster.remove_pod(other)
    cluster.remove_claim(claim)
    cluster.lives_on(waiting, a, pod)
    assert cluster.refused(waiting) == ""
    # Its room is free before its object has gone.
    a.gone(old)
    cluster.none_overfull()


def test_twenty_pods_at_once_fill_two_nodes_and_never_overfill_one(cluster: Cluster) -> None:
    """The scheduler reserves no room: what it sends too much is given back and goes elsewhere.

    Twelve would rather be on the first node, which takes seven, and come while no agent is there to
    publish less: it finds them all at once.
    """
    a, b = cluster.node("a", 40 * MIB), cluster.node("b", 72 * MIB)
    cls = cluster.storage_class()
    cluster.start()
    full = cluster.heeded(cls)
    size = 4 * MIB
    assert full[a.node] // size < 12
    assert 20 <= full[a.node] // size + full[b.node] // size <= 22
    a.stop()
    claims = [cluster.claim(cls, size) for _ in range(20)]
    pods = [cluster.pod(claim, rather=a.node) for claim in claims[:12]]
    for claim in claims[:12]:
        cluster.routed(claim)
    assert {cluster.label(claim) for claim in claims[:12]} == {a.node}
    pods += [cluster.pod(claim) for claim in claims[12:]]
    a.start()
    for claim, pod in zip(claims, pods, strict=True):
        volume = cluster.bound(claim)
        cluster.none_overfull()
        assert cluster.placed(pod) == node_of(volume)
    used = cluster.none_overfull()
    assert sum(used.values()) == 20 * size
    assert len([claim for claim in claims if cluster.refused(claim)]) >= 5
    for lab in (a, b):
        made = [name for name in os.listdir(_pool(lab)) if name.startswith("pvc-")]
        assert len(made) == used[lab.node] // size


def test_a_node_with_less_room_than_it_says_gives_the_claim_back(cluster: Cluster) -> None:
    """What was published is stale: the disk went while no agent was there."""
    a, b = cluster.node("a", LARGE), cluster.node("b", SMALL)
    cls = cluster.storage_class()
    cluster.start()
    cluster.heeded(cls)
    a.stop()
    cluster.unmount_pool(a)
    claim = cluster.claim(cls, 8 * MIB)
    pod = cluster.pod(claim, rather=a.node)
    assert cluster.routed(claim) == a.node
    assert cluster.selected(claim) == a.node
    a.start()
    cluster.event(claim, "ProvisioningFailed", f"node {a.node}: pool fast: ")
    cluster.lives_on(claim, b, pod)
    assert cluster.selected(claim) == b.node
    assert cluster.refused(claim).startswith(f"{a.node} 20")
    cluster.until(lambda: cluster.rooms(cls)[a.node], lambda room: room == 0)


def test_a_claim_waits_for_the_agent_of_its_node(cluster: Cluster) -> None:
    """Nobody else makes its volume, however long that takes, and the node does as it starts."""
    a, b = cluster.node("a", SMALL), cluster.node("b", SMALL)
    cls = cluster.storage_class()
    cluster.start()
    cluster.heeded(cls)
    a.stop()
    claim = cluster.claim(cls, 8 * MIB)
    pod = cluster.pod(claim, on=a)
    assert cluster.routed(claim) == a.node
    other = cluster.claim(cls, 8 * MIB)
    cluster.lives_on(other, b, cluster.pod(other, on=b))
    b.settle()
    cluster.pending(claim)
    assert cluster.label(claim) == cluster.selected(claim) == a.node
    a.start()
    cluster.lives_on(claim, a, pod)


def test_a_claim_of_a_node_that_vanishes_is_scheduled_anew(cluster: Cluster) -> None:
    a, b = cluster.node("a", LARGE), cluster.node("b", SMALL)
    cls = cluster.storage_class()
    cluster.start()
    cluster.heeded(cls)
    a.stop()
    claim = cluster.claim(cls, 8 * MIB)
    pod = cluster.pod(claim, rather=a.node)
    assert cluster.routed(claim) == a.node
    cluster.remove_node(a)
    cluster.event(claim, "ProvisioningFailed", f"the selected node {a.node} does not exist")
    cluster.lives_on(claim, b, pod)
