"""The patches we send for a PersistentVolume: the fewest fields, each bound to what was seen.

Never the whole object: the structs we decode leave fields out, and writing them back would lose
them. `uid` and `resourceVersion` in a merge patch make the API server refuse it (409) when the
object is another or has changed since the decision was made (Kubernetes API conventions,
"Concurrency control").
"""

from __future__ import annotations

from typing import Any

from localvolume.kube.client import JsonPatch, MergePatch
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.identity import Identity, to_annotation
from localvolume.volumes.objects import claim_of, is_being_deleted, is_finalized


def _bound_to(volume: PersistentVolume, **metadata: Any) -> MergePatch:
    precondition = {
        "uid": volume.metadata.uid,
        "resourceVersion": volume.metadata.resource_version,
    }
    return MergePatch({"metadata": precondition | metadata})


def adoption(volume: PersistentVolume, node_name: str, identity: Identity | None) -> MergePatch:
    """Our label, finalizer and, where given, identity; every other field stays as it is."""
    changes: dict[str, Any] = {"labels": {marks.NODE_LABEL: marks.node_key(node_name)}}
    if identity is not None:
        changes["annotations"] = {marks.IDENTITY_ANNOTATION: to_annotation(identity)}
    # The API server takes no new finalizer on an object that is already being deleted.
    if not is_finalized(volume) and not is_being_deleted(volume):
        changes["finalizers"] = [*volume.metadata.finalizers, marks.FINALIZER]
    return _bound_to(volume, **changes)


def claimed(volume: PersistentVolume) -> MergePatch:
    """The note that a claim holds the volume: it outlives the claim and an emptied claimRef."""
    return _bound_to(volume, annotations={marks.CLAIMED_ANNOTATION: claim_of(volume)})


def without_finalizer(volume: PersistentVolume) -> JsonPatch:
    """Our finalizer out of the list, if nothing about the object has changed since."""
    position = volume.metadata.finalizers.index(marks.FINALIZER)
    return JsonPatch(
        [
            {"op": "test", "path": "/metadata/uid", "value": volume.metadata.uid},
            {
                "op": "test",
                "path": "/metadata/resourceVersion",
                "value": volume.metadata.resource_version,
            },
            {"op": "test", "path": f"/metadata/finalizers/{position}", "value": marks.FINALIZER},
            {"op": "remove", "path": f"/metadata/finalizers/{position}"},
        ]
    )
