"""Whether a claim may ask for more: admission plugin PersistentVolumeClaimResize, in miniature.

That only bound claims may is told by their validation already.
"""

from __future__ import annotations

from localvolume_lab.sandbox.controllers import matching
from localvolume_lab.sandbox.kinds import CLAIMS, STORAGE_CLASSES
from localvolume_lab.sandbox.refusals import forbidden
from localvolume_lab.sandbox.rules import quantities
from localvolume_lab.sandbox.store import Body, Store


def check(store: Store, new: Body, old: Body) -> None:
    """Raises Refusal where its class does not allow it."""
    if matching.asked(new) <= matching.asked(old):
        return
    name = matching.class_of(old)
    found = store.find(STORAGE_CLASSES, name) if name else None
    if found is None or not found.body.get("allowVolumeExpansion"):
        why = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions "
            "the pvc must support resize"
        )
        raise forbidden(CLAIMS, old["metadata"]["name"], why)


def outgrown(claim: Body) -> bool:
    """Whether the claim asks for more than it has."""
    has = claim["status"].get("capacity", {}).get("storage", "0")
    return bool(matching.asked(claim) > quantities.value(has))
