"""The patches that the agent sends for a static volume: the fewest fields (volumes.patches)."""

from __future__ import annotations

from typing import Any

from localvolume.kube.client import MergePatch
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.identity import Identity, to_annotation
from localvolume.volumes.objects import claim_of, is_being_deleted, is_finalized
from localvolume.volumes.patches import bound_to


def adoption(volume: PersistentVolume, node_name: str, identity: Identity | None) -> MergePatch:
    """Our label, finalizer and, where given, identity; every other field stays as it is."""
    changes: dict[str, Any] = {"labels": {marks.NODE_LABEL: marks.node_key(node_name)}}
    if identity is not None:
        changes["annotations"] = {marks.IDENTITY_ANNOTATION: to_annotation(identity)}
    # The API server takes no new finalizer on an object that is already being deleted.
    if not is_finalized(volume) and not is_being_deleted(volume):
        changes["finalizers"] = [*volume.metadata.finalizers, marks.FINALIZER]
    return bound_to(volume, **changes)


def recorded(volume: PersistentVolume, generation: str) -> MergePatch:
    """Which hand-over of the volume the object is, by the volume's record."""
    return bound_to(volume, annotations={marks.GENERATION_ANNOTATION: generation})


def claimed(volume: PersistentVolume) -> MergePatch:
    """The note that a claim holds the volume: it outlives the claim and an emptied claimRef."""
    return bound_to(volume, annotations={marks.CLAIMED_ANNOTATION: claim_of(volume)})
