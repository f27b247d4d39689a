"""A cluster without the kinds of snapshots, and one that gets them while the agent runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.snapshots.paces import SnapshotPaces
from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_endpoints import http
from tests.cluster.support_snapshots import (
    SnapshotLab,
    forget_kinds,
    snapshot_controller,
)

pytestmark = pytest.mark.needs("root", "loop", "ext4", "btrfs", "controlplane", "snapshots")


@pytest.fixture
def controller() -> None:
    """None yet, nor what it serves: the test has them begin."""


def test_snapshots_begin_when_the_cluster_gets_their_kinds(
    lab: SnapshotLab, control_plane: ControlPlane, tmp_path: Path
) -> None:
    forget_kinds(control_plane)
    lab.copying_pool()
    lab.paces = replace(lab.paces, snapshots=SnapshotPaces(absent=0.5))
    lab.start(csi=True, kubelet_directory=str(lab.kubelet))
    claim = lab.claimed()
    lab.until(lambda: http(lab.port, "/ready")[0], lambda status: status == 200)
    assert not [line for line in lab.log() if "volumesnapshot" in line and "INFO" not in line]
    told = "INFO volumesnapshotcontents: this cluster does not have them"
    lab.until(lambda: lab.log().count(told), lambda times: times == 1)
    with snapshot_controller(control_plane, tmp_path):
        snapshot = lab.ready(lab.snapshot(claim))
        lab.take_away(snapshot)
        lab.until(lambda: lab.content_of(snapshot), lambda found: found is None)
    forget_kinds(control_plane)
    lab.until(lambda: lab.log().count(told), lambda times: times == 2)
    lab.until(lambda: http(lab.port, "/ready")[0], lambda status: status == 200)
