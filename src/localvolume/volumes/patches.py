"""Patches that more than one role sends, and how each is bound to the object that was seen.

Never the whole object: the structs we decode leave fields out, and writing them back would lose
those. `uid` and `resourceVersion` in a merge patch, and the tests of a JSON patch, make the API
server refuse the patch if the object is another one or has changed since the decision was made
(Kubernetes API conventions, "Concurrency control").
"""

from __future__ import annotations

from typing import Any

from localvolume.kube.client import JsonPatch, MergePatch
from localvolume.kube.objects import KubeObject
from localvolume.volumes import marks


def bound_to(seen: KubeObject, **metadata: Any) -> MergePatch:
    """Sets these metadata fields and no others, if nothing has changed since."""
    precondition = {
        "uid": seen.metadata.uid,
        "resourceVersion": seen.metadata.resource_version,
    }
    return MergePatch({"metadata": precondition | metadata})


def secured(seen: KubeObject, name: str = marks.FINALIZER) -> MergePatch:
    """Adds that finalizer, if nothing has changed since."""
    return bound_to(seen, finalizers=[*seen.metadata.finalizers, name])


def without_finalizer(seen: KubeObject, name: str = marks.FINALIZER) -> JsonPatch:
    """Removes that finalizer and no other, if nothing has changed since.

    Raises ValueError if it is not in the list.
    """
    meta = seen.metadata
    position = meta.finalizers.index(name)
    return JsonPatch(
        [
            {"op": "test", "path": "/metadata/uid", "value": meta.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
            {"op": "test", "path": f"/metadata/finalizers/{position}", "value": name},
            {"op": "remove", "path": f"/metadata/finalizers/{position}"},
        ]
    )
