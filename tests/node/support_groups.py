"""Two claims of a tenant that one pod uses, and snapshots of both as of one moment."""

from __future__ import annotations

from typing import Any

from tests.cluster.support_groups import GROUP_BOUND, GROUP_CLASSES, GROUPS, of_group_kind
from tests.cluster.support_objects import Objects
from tests.cluster.support_snapshots import SNAPSHOTS, read
from tests.node.support_csi import CsiGround
from tests.node.support_snapshots import SnapshotTenant
from tests.suite.names import CSI
from tests.suite.until import until

Object = dict[str, Any]


class PairTenant:
    """Who has two claims of one class, and pods that have them at /first and /second."""

    def __init__(self, ground: CsiGround, objects: Objects, unique: str) -> None:
        self.unique = unique
        self.both = [
            SnapshotTenant(ground, objects, f"{unique}-{name}") for name in ("first", "second")
        ]
        self._ground = ground
        self._objects = objects
        self._labels = {"app": unique}

    def claims(self) -> None:
        """Both, which one selector finds."""
        self.both[0].csi_class()
        for one in self.both:
            one.claim(storageClassName=self.both[0].unique, labels=self._labels)

    def begin(self) -> str:
        """Start a pod with both, and wait until it runs; returns its name."""
        first, second = self.both
        pod = first.ask_for_all({"first": first.source, "second": second.source})
        first.begun(pod)
        return pod

    def within(self, pod: str, script: str) -> str:
        """What a script says in the running pod."""
        return self.both[0].within(pod, script)

    def end(self, pod: str) -> None:
        self.both[0].end(pod)

    def end_all(self) -> None:
        """Have no pod of a test that failed hold its claims."""
        for one in self.both:
            one.end_all()

    def snapshots(self) -> list[str]:
        """Have a VolumeGroupSnapshot of both; the VolumeSnapshots' names once they can be used."""
        body = {"driver": CSI, "deletionPolicy": "Delete"}
        kind = of_group_kind("VolumeGroupSnapshotClass", self.unique)
        self._objects.make(GROUP_CLASSES, {**kind, **body})
        source = {"selector": {"matchLabels": self._labels}}
        spec = {"volumeGroupSnapshotClassName": self.unique, "source": source}
        kind = of_group_kind("VolumeGroupSnapshot", self.unique)
        self._ground.plane.request("POST", GROUPS, {**kind, "spec": spec})
        self._until(self._group, lambda one: one.get("status", {}).get("readyToUse"))
        found = self._until(self._members, lambda them: len(them) == len(self.both))
        return [found[one.unique] for one in self.both]

    def restored(self, snapshots: list[str]) -> PairTenant:
        """Who has claims with the content of those snapshots."""
        made = PairTenant(self._ground, self._objects, f"{self.unique}-restored")
        for one, name in zip(made.both, snapshots, strict=True):
            kind = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot"}
            source = {**kind, "name": name}
            one.claim(storageClassName=self.both[0].unique, dataSource=source)
        return made

    def forget_snapshots(self) -> None:
        """Delete the VolumeGroupSnapshot, and wait until all of it is gone."""
        # Without its finalizer, the snapshot-controller would never hear of the deletion.
        self._until(self._group, lambda one: GROUP_BOUND in one["metadata"].get("finalizers", []))
        self._ground.plane.request("DELETE", f"{GROUPS}/{self.unique}")
        self._until(lambda: read(self._ground.plane, f"{GROUPS}/{self.unique}"), _nothing)
        self._until(self._ours, _nothing)

    def remove(self) -> None:
        """Delete both claims, and wait until nothing of them is mounted nor on record."""
        for one in self.both:
            one.unmounted()
            one.remove()

    def _group(self) -> Object:
        return self._objects.get(f"{GROUPS}/{self.unique}")

    def _ours(self) -> list[Object]:
        """The VolumeSnapshots of the claims."""
        names = {one.unique for one in self.both}
        return [
            one
            for one in self._objects.get(SNAPSHOTS)["items"]
            if one["spec"]["source"].get("persistentVolumeClaimName") in names
        ]

    def _members(self) -> dict[str, str]:
        """The names of those that can be used, by their claim."""
        return {
            one["spec"]["source"]["persistentVolumeClaimName"]: one["metadata"]["name"]
            for one in self._ours()
            if one.get("status", {}).get("readyToUse")
        }

    def _until(self, ask: Any, wanted: Any) -> Any:
        return until(ask, wanted, seconds=150, said=self._ground.logs)


def _nothing(found: Any) -> bool:
    return not found
