"""A stand-in for external-snapshotter's snapshot-controller: VolumeSnapshots and their contents.

After pkg/common-controller of external-snapshotter v8.7.0: the same content for a VolumeSnapshot of
a claim, the same finalizers and annotations, the same status. What is cut and removed is the
driver's, as on a cluster.

Simplified: a VolumeSnapshot names its class, and a claim as its source (none with a content that
somebody made); no Events, no finalizer on the claim, no groups; and a VolumeSnapshot goes although
a claim is being made of it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from localvolume_lab.sandbox.api import Api
from localvolume_lab.sandbox.clock import timestamp
from localvolume_lab.sandbox.kinds import (
    CLAIMS,
    PERSISTENT_VOLUMES,
    SNAPSHOT_CLASSES,
    SNAPSHOT_CONTENTS,
    SNAPSHOTS,
    Resource,
)
from localvolume_lab.sandbox.store import Body, Change

_PREFIX = "snapshot.storage.kubernetes.io"
BEING_DELETED = f"{_PREFIX}/volumesnapshot-being-deleted"
CONTENT_FINALIZER = f"{_PREFIX}/volumesnapshotcontent-bound-protection"
FINALIZERS = (
    f"{_PREFIX}/volumesnapshot-as-source-protection",
    f"{_PREFIX}/volumesnapshot-bound-protection",
)

_NANOS = 1_000_000_000


class Snapshots:
    """Keeps VolumeSnapshots and contents together."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._store = api.store

    def look(self, resource: Resource, change: Change) -> None:
        """Sync what a change may concern."""
        if resource is SNAPSHOTS:
            self._sync(*change.key)
        elif resource is SNAPSHOT_CONTENTS:
            reference = change.new.body["spec"].get("volumeSnapshotRef") or {}
            self._sync(reference.get("namespace", ""), reference.get("name", ""))
        elif resource in {CLAIMS, PERSISTENT_VOLUMES, SNAPSHOT_CLASSES}:
            # One that could not be served before may be now.
            for one in list(self._store[SNAPSHOTS]):
                meta = one.body["metadata"]
                self._sync(meta["namespace"], meta["name"])

    def _sync(self, namespace: str, name: str) -> None:
        found = self._store.find(SNAPSHOTS, name, namespace)
        if found is None:
            return
        snapshot = found.body
        content = self._content(snapshot)
        if "deletionTimestamp" in snapshot["metadata"]:
            self._end(snapshot, content)
            return
        if content is None:
            if snapshot.get("status", {}).get("boundVolumeSnapshotContentName"):
                self._tell(snapshot, {"readyToUse": False}, "VolumeSnapshotContent is missing")
                return
            made = self._to_make(snapshot)
            if isinstance(made, str):
                self._tell(snapshot, {"readyToUse": False}, made)
                return
            snapshot = self._protected(snapshot, made["spec"]["deletionPolicy"])
            content = self._api.create(SNAPSHOT_CONTENTS, made)
        self._copy_status(snapshot, content)

    def _content(self, snapshot: Body) -> Body | None:
        """The content that was made for it: it has no other name, and names it."""
        uid = snapshot["metadata"]["uid"]
        found = self._store.find(SNAPSHOT_CONTENTS, f"snapcontent-{uid}")
        if found is None or found.body["spec"].get("volumeSnapshotRef", {}).get("uid") != uid:
            return None
        return found.body

    # --- its beginning -------------------------------------------------------------------------

    def _to_make(self, snapshot: Body) -> Body | str:
        """The content to make for it, or why none can be made."""
        meta, spec = snapshot["metadata"], snapshot["spec"]
        source = spec.get("source", {}).get("persistentVolumeClaimName", "")
        class_name = spec.get("volumeSnapshotClassName", "")
        if not source or not class_name:
            return "the sandbox serves VolumeSnapshots that name a claim and a class, and no others"
        cls = self._store.find(SNAPSHOT_CLASSES, class_name)
        if cls is None:
            return f'volumesnapshotclass.snapshot.storage.k8s.io "{class_name}" not found'
        claim = self._store.find(CLAIMS, source, meta["namespace"])
        if claim is None:
            return "cannot get claim from snapshot"
        bound = claim.body["status"].get("phase") == "Bound"
        volume = self._store.find(PERSISTENT_VOLUMES, claim.body["spec"].get("volumeName", ""))
        if not bound or volume is None:
            return f"the PVC {source} is not yet bound to a PV"
        csi = volume.body["spec"].get("csi")
        if not csi or csi.get("driver") != cls.body.get("driver"):
            return f"the volume of {source} is none of the driver of {class_name}"
        return {
            "metadata": {"name": f"snapcontent-{meta['uid']}", "finalizers": [CONTENT_FINALIZER]},
            "spec": {
                "deletionPolicy": cls.body["deletionPolicy"],
                "driver": csi["driver"],
                "source": {"volumeHandle": csi["volumeHandle"]},
                "sourceVolumeMode": volume.body["spec"]["volumeMode"],
                "volumeSnapshotClassName": class_name,
                "volumeSnapshotRef": {
                    "apiVersion": snapshot["apiVersion"],
                    "kind": snapshot["kind"],
                    **{key: meta[key] for key in ("name", "namespace", "resourceVersion", "uid")},
                },
            },
        }

    def _protected(self, snapshot: Body, policy: str) -> Body:
        """It stays until its content is seen to, if that is to go with it."""
        meta = snapshot["metadata"]
        own = FINALIZERS if policy == "Delete" else FINALIZERS[:1]

        def change(old: Body) -> Body:
            there = old["metadata"].get("finalizers", [])
            kept = [*there, *(one for one in own if one not in there)]
            return {**old, "metadata": {**old["metadata"], "finalizers": kept}}

        return self._api.modify(SNAPSHOTS, meta["name"], change, meta["namespace"])

    # --- what is said of it --------------------------------------------------------------------

    def _copy_status(self, snapshot: Body, content: Body) -> None:
        told = content.get("status") or {}
        status: Body = {
            "boundVolumeSnapshotContentName": content["metadata"]["name"],
            "readyToUse": told.get("readyToUse", False),
        }
        if "creationTime" in told:
            cut = datetime.fromtimestamp(told["creationTime"] // _NANOS, UTC)
            status["creationTime"] = cut.strftime("%Y-%m-%dT%H:%M:%SZ")
        if "restoreSize" in told:
            status["restoreSize"] = _quantity(told["restoreSize"])
        self._tell(snapshot, status, told.get("error", {}).get("message", ""))

    def _tell(self, snapshot: Body, status: Body, error: str) -> None:
        """Write its status, unless it says all of that already."""
        before = snapshot.get("status", {})
        if error:
            said = before.get("error", {})
            same = said.get("message") == error
            status["error"] = said if same else {"message": error, "time": timestamp()}
        kept = {key: value for key, value in before.items() if key != "error"}
        if (new := {**kept, **status}) != before:
            meta = snapshot["metadata"]
            self._api.modify(
                SNAPSHOTS,
                meta["name"],
                lambda old: {**old, "status": new},
                meta["namespace"],
                subresource="status",
            )

    # --- its end -------------------------------------------------------------------------------

    def _end(self, snapshot: Body, content: Body | None) -> None:
        """Its content goes first, where the policy is Delete; the driver lets that go."""
        meta = snapshot["metadata"]
        if content is not None:
            name = content["metadata"]["name"]
            if BEING_DELETED not in content["metadata"].get("annotations", {}):
                self._api.modify(SNAPSHOT_CONTENTS, name, _being_deleted)
            if content["spec"]["deletionPolicy"] == "Delete":
                if "deletionTimestamp" not in content["metadata"]:
                    self._api.delete(SNAPSHOT_CONTENTS, name)
                return
        finalizers = meta.get("finalizers", [])
        kept = [one for one in finalizers if one not in FINALIZERS]
        if kept != finalizers:
            self._api.modify(
                SNAPSHOTS,
                meta["name"],
                lambda old: {**old, "metadata": {**old["metadata"], "finalizers": kept}},
                meta["namespace"],
            )


def _being_deleted(content: Body) -> Body:
    meta = content["metadata"]
    annotations = {**meta.get("annotations", {}), BEING_DELETED: "yes"}
    return {**content, "metadata": {**meta, "annotations": annotations}}


def _quantity(size: int) -> str:
    """Bytes as Kubernetes writes them."""
    return f"{size // 1024}Ki" if size % 1024 == 0 else str(size)
