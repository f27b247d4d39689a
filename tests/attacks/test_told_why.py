"""A claim that no node can serve: what is said of it last says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.support_controller import Ground
from tests.cluster.support_objects import Objects
from tests.cluster.support_scheduling import Cluster, cluster_for
from tests.cluster.support_seeing import Seeing
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
    cluster.start()
    cluster.measure(cls)
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
    assert (found["code"], found["verdict"]) == ("given-back", said)
    assert any(why in one["value"] for one in found["facts"] if one["name"] == "Given back by")
    cluster.pending(claim)
