"""The patches of an object that more than one role sends, and how each is bound.

Never the whole object: the structs we decode leave fields out, and writing them back would lose
them. `uid` and `resourceVersion` in a merge patch, and the tests of a JSON patch, make the API
server refuse it where the object is another one or has changed since the decision was made
(Kubernetes API conventions, "Concurrency control").
"""

from __future__ import annotations

from typing import Any

from localvolume.kube.client import JsonPatch, MergePatch
from localvolume.kube.objects import KubeObject, PersistentVolume
from localvolume.volumes import marks


def bound_to(seen: KubeObject, **metadata: Any) -> MergePatch:
    """These fields of the metadata, and no others, if nothing has changed since."""
    precondition = {
        "uid": seen.metadata.uid,
        "resourceVersion": seen.metadata.resource_version,
    }
    return MergePatch({"metadata": precondition | metadata})


def secured(volume: PersistentVolume) -> MergePatch:
    """With our finalizer."""
    return bound_to(volume, finalizers=[*volume.metadata.finalizers, marks.FINALIZER])


def without_finalizer(volume: PersistentVolume) -> JsonPatch:
    """Our finalizer out of the list, if nothing has changed since; others' stay.

    Raises ValueError where it is not in the list.
    """
    meta = volume.metadata
    position = meta.finalizers.index(marks.FINALIZER)
    return JsonPatch(
        [
            {"op": "test", "path": "/metadata/uid", "value": meta.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
            {"op": "test", "path": f"/metadata/finalizers/{position}", "value": marks.FINALIZER},
            {"op": "remove", "path": f"/metadata/finalizers/{position}"},
        ]
    )
