"""The metrics of snapshots: how the contents of this node stand, and what failed."""

from __future__ import annotations

from collections.abc import Iterable

from localvolume.backends.model import WARN_PERCENT
from localvolume.kube.snapshotobjects import VolumeSnapshotContent
from localvolume.process.metrics import Metrics, counter, gauge
from localvolume.volumes.snapshots import AnyContent, is_ready

_STATES = ("waiting", "failed", "ready", "deleting")


class SnapshotMetrics(Metrics):
    """All of them, on one registry."""

    # fmt: off
    contents = gauge("localvolume_snapshot_contents",
        "VolumeSnapshotContents of this node: waiting, failed, ready or deleting", "state")
    reserves = gauge("localvolume_snapshot_reserves",
        "Snapshots of this node that have a reserve: with room, filling (80 % and more) or lost",
        "state")
    failures = counter("localvolume_snapshot_failures_total",
        "Failed attempts to cut, find or remove a snapshot", "operation")
    # fmt: on

    def tell(self, contents: Iterable[VolumeSnapshotContent]) -> None:
        """Tell of all contents of this node, after a look."""
        for state, count in counts_of(contents).items():
            self.contents.labels(state).set(count)

    def tell_reserves(self, fills: Iterable[float], lost: int) -> None:
        """Tell how full the reserves of this node's snapshots are, in percent."""
        full = [one >= WARN_PERCENT for one in fills]
        for state, count in (("room", full.count(False)), ("filling", sum(full)), ("lost", lost)):
            self.reserves.labels(state).set(count)


def counts_of(contents: Iterable[AnyContent]) -> dict[str, int]:
    """How many there are in each state."""
    counts = dict.fromkeys(_STATES, 0)
    for content in contents:
        counts[_state_of(content)] += 1
    return counts


def _state_of(content: AnyContent) -> str:
    if content.metadata.deletion_timestamp:
        return "deleting"
    if is_ready(content):
        return "ready"
    failed = content.status is not None and content.status.error is not None
    return "failed" if failed else "waiting"
