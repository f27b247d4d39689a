"""Patches that more than one role sends, and how each is bound to the object that was seen.

Never the whole object: the structs we decode leave fields out, and writing them back would lose
those. `uid` and `resourceVersion` in a merge patch, and the tests of a JSON patch, make the API
server refuse the patch if the object is another one or has changed since the decision was made
(Kubernetes API conventions, "Concurrency control").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from localvolume.kube.client import JsonPatch, MergePatch
from localvolume.kube.objects import KubeObject, PersistentVolumeClaim
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
    position = seen.metadata.finalizers.index(name)
    return JsonPatch(
        [
            *_unchanged(seen),
            {"op": "test", "path": f"/metadata/finalizers/{position}", "value": name},
            {"op": "remove", "path": f"/metadata/finalizers/{position}"},
        ]
    )


def of_status(
    claim: PersistentVolumeClaim,
    fields: Mapping[str, Any],
    *,
    ours: Collection[str],
    condition: Mapping[str, Any] | None = None,
) -> JsonPatch:
    """Sets these fields of a claim's status, if nothing has changed since; None removes one that is
    there.

    Of the conditions whose types are in `ours`, `condition` alone is left. Those of others stay:
    the API server itself keeps some. They are never written back, as we do not read all of them;
    ours are found by their places.
    """
    operations = _unchanged(claim)
    for name, value in fields.items():
        path = f"/status/{name}"
        if value is None:
            operations.append({"op": "remove", "path": path})
        else:
            operations.append({"op": "add", "path": path, "value": value})
    before = claim.status.conditions
    for place in reversed(range(len(before))):
        if before[place].type in ours:
            operations.append({"op": "remove", "path": f"/status/conditions/{place}"})
    if condition is not None and before:
        operations.append({"op": "add", "path": "/status/conditions/-", "value": condition})
    elif condition is not None:
        operations.append({"op": "add", "path": "/status/conditions", "value": [condition]})
    return JsonPatch(operations)


def _unchanged(seen: KubeObject) -> list[dict[str, Any]]:
    meta = seen.metadata
    return [
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
    ]
