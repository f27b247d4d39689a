"""How a typed server writes an object down."""

from __future__ import annotations

from localvolume_lab.sandbox.store import Body

_META_ORDER = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
)


def ordered(body: Body) -> Body:
    """The body as a typed server writes it: type first, metadata in order and without empties."""
    meta = body["metadata"]
    made: Body = {
        "kind": body["kind"],
        "apiVersion": body["apiVersion"],
        "metadata": {
            field: meta[field] for field in _META_ORDER if meta.get(field) not in (None, "", [], {})
        },
    }
    made.update((key, value) for key, value in body.items() if key not in made)
    return made
