"""The metrics of groups of snapshots: how the contents of this node stand, and what failed."""

from __future__ import annotations

from collections.abc import Iterable

from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent
from localvolume.process.metrics import Metrics, counter, gauge
from localvolume.snapshots.metrics import counts_of


class GroupMetrics(Metrics):
    """All of them, on one registry."""

    # fmt: off
    contents = gauge("localvolume_group_snapshot_contents",
        "VolumeGroupSnapshotContents of this node: waiting, failed, ready or deleting", "state")
    failures = counter("localvolume_group_snapshot_failures_total",
        "Failed attempts to cut, find or remove a group of snapshots", "operation")
    # fmt: on

    def tell(self, contents: Iterable[VolumeGroupSnapshotContent]) -> None:
        """Tell of all contents of this node, after a look."""
        for state, count in counts_of(contents).items():
            self.contents.labels(state).set(count)
