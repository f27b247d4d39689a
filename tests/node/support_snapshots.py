"""Snapshots for tenants of the real node, and claims that begin with the content of another."""

from __future__ import annotations

from typing import Any

from tests.cluster.support_snapshots import CONTENTS, SNAPSHOT_CLASSES, SNAPSHOTS, of_kind, read
from tests.node.support_csi import CsiTenant
from tests.suite.api import CLAIMS
from tests.suite.names import CSI
from tests.suite.until import until

Object = dict[str, Any]


class SnapshotTenant(CsiTenant):
    """A tenant with one claim, as any; it may be snapshotted, and be the source of others."""

    def snapshot(self) -> Object:
        """The VolumeSnapshot of the claim, once it can be used."""
        body = {"driver": CSI, "deletionPolicy": "Delete"}
        self.objects.make(SNAPSHOT_CLASSES, {**of_kind("VolumeSnapshotClass", self.unique), **body})
        source = {"persistentVolumeClaimName": self.unique}
        spec = {"volumeSnapshotClassName": self.unique, "source": source}
        self.objects.make(SNAPSHOTS, {**of_kind("VolumeSnapshot", self.unique), "spec": spec})
        found: Object = until(
            lambda: self.objects.get(f"{SNAPSHOTS}/{self.unique}"),
            lambda one: one.get("status", {}).get("readyToUse"),
            seconds=150,
            said=self.ground.logs,
        )
        return found

    def forget_snapshot(self) -> None:
        """Delete the VolumeSnapshot, and wait until its content is gone too."""
        path = f"{SNAPSHOTS}/{self.unique}"
        content = self.objects.get(path)["status"]["boundVolumeSnapshotContentName"]
        self.ground.plane.request("DELETE", path)
        until(
            lambda: read(self.ground.plane, f"{CONTENTS}/{content}"),
            lambda found: found is None,
            seconds=150,
            said=self.ground.logs,
        )

    def restored(self, **spec: Any) -> SnapshotTenant:
        """Who has a claim with the content of the snapshot."""
        kind = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot"}
        return self._beginning_with(kind, "restored", spec)

    def cloned(self, **spec: Any) -> SnapshotTenant:
        """Who has a claim with the content of this one's."""
        return self._beginning_with({"kind": "PersistentVolumeClaim"}, "cloned", spec)

    def _beginning_with(self, kind: Object, what: str, spec: Object) -> SnapshotTenant:
        made = SnapshotTenant(self.ground, self.objects, f"{self.unique}-{what}")
        source = {**kind, "name": self.unique}
        made.claim(**{"storageClassName": self.unique, "dataSource": source, **spec})
        return made

    def phase(self) -> str:
        """The claim's."""
        phase: str = self.objects.get(f"{CLAIMS}/{self.unique}")["status"]["phase"]
        return phase

    def bound(self) -> None:
        """Wait until the claim has its volume: no pod need ask for it."""
        until(self.phase, lambda phase: phase == "Bound", seconds=150, said=self.ground.logs)
