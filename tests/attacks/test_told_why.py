"""A claim that no node can serve: what is said of it last says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support_controller import Ground
from tests.cluster.support_dynamic import Claim
from tests.cluster.support_objects import Objects
from tests.cluster.support_scheduling import Cluster, cluster_for
from tests.cluster.support_seeing import Seeing
from tests.suite.names import PROBLEM
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


@pytest.fixture
def cluster(ground: Ground, objects: Objects, unique: str, tmp_path: Path) -> Iterator[Cluster]:
    with cluster_for(ground, objects, unique, tmp_path) as cluster:
        yield cluster


def test_a_block_claim_on_backends_without_block(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each node gives it back with its reason, and the controller has the last word."""
    a, b = cluster.node("a", 32 * MIB), cluster.node("b", 32 * MIB)
    cls = cluster.storage_class(waits=False)
    for lab in (a, b):
        lab.start()
    cluster.measure(cls)
    # A node's Event is sent beside the patch that gives the claim back, and may come after it.
    cluster.start_controller(nowhere=5)
    claim = a.claim(cls, node=None, volumeMode="Block")
    why = "pool fast: the backend directory makes no Block volumes; image and lvm do"
    for lab in (a, b):
        said = cluster.event(claim, "ProvisioningFailed", f"node {lab.node}: ")["message"]
        assert said.endswith(f"node {lab.node}: {why}; another node is to be chosen")
    said = cluster.event(claim, "ProvisioningFailed", "no node takes ")["message"]
    assert said == "no node takes 8Mi: " + "; ".join(
        f"{lab.node}: it gave the claim back: {why}" for lab in (a, b)
    )
    found = Seeing(cluster.plane, capsys).why(f"pvc/{claim['metadata']['name']}", "-n", "default")
    assert (found["code"], found["reason"]) == ("given-back", said)
    assert any(why in one["value"] for one in found["facts"] if one["name"] == "Given back by")
    cluster.pending(claim)


def test_a_claim_that_waits_for_its_first_pod_where_no_size_can_be_enforced(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """README's own pool, on an ext4 that was made without project quotas: only the node knew."""
    a, b = cluster.node("a"), cluster.node("b")
    pool = a.pool(enforce="quota")
    cls = cluster.storage_class(waits=True)
    cluster.start(a)
    seeing = Seeing(cluster.plane, capsys)
    claim = cluster.claim(cls, 8 * MIB)
    about = (f"pvc/{claim['metadata']['name']}", "-n", "default")
    for found in (seeing.until_why("no-node", *about), _with_a_pod(cluster, seeing, claim, about)):
        assert f"{a.node}: pool fast: sizes cannot be enforced: " in found["reason"]
        # With the commands that would mend it.
        assert f"umount {pool.directory}; tune2fs -O project,quota" in found["reason"]
        assert found["who"] == "you: put right what it says of the nodes"
    said = cluster.event(claim, "ProvisioningFailed", "no node takes 8Mi: ")
    assert f"{a.node}: pool fast: sizes cannot be enforced: " in said["message"]
    # It goes to a node that can, and what was said of the other is no word about it any more.
    b.pool(size=64 * MIB)
    b.start()
    cluster.lives_on(claim, b)
    assert seeing.why(*about)["code"] == "bound"


def _with_a_pod(
    cluster: Cluster, seeing: Seeing, claim: Claim, about: tuple[str, ...]
) -> dict[str, Any]:
    pod = cluster.pod(claim)
    cluster.until(lambda: cluster.said(pod), bool)
    return seeing.why(*about)


def test_a_problem_that_is_mended_is_told_no_longer(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    a = cluster.node("a")
    a.pool(enforce="quota")
    cls = cluster.storage_class(waits=True)
    cluster.start(a)
    seeing = Seeing(cluster.plane, capsys)
    claim = cluster.claim(cls, 8 * MIB)
    about = (f"pvc/{claim['metadata']['name']}", "-n", "default")
    seeing.until_why("no-node", *about)
    a.settings["pools"]["fast"]["enforce"] = "none"
    a.configure()
    seeing.until_why("no-pod", *about)
    (published,) = cluster.capacities(a.node, cls)
    assert PROBLEM not in published["metadata"].get("annotations", {})
