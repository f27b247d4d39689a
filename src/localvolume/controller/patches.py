"""The patches that the controller sends for a volume or a claim, bound to what was seen of it."""

from __future__ import annotations

from localvolume.kube.client import MergePatch
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import claims, marks
from localvolume.volumes.moments import written
from localvolume.volumes.patches import bound_to


def adopted(volume: PersistentVolume, node_name: str) -> MergePatch:
    """The label by which the node's agent finds it."""
    return bound_to(volume, labels={marks.NODE_LABEL: marks.node_key(node_name)})


def lost(volume: PersistentVolume, now: float) -> MergePatch:
    """Since when no node is there that can serve it; `now` in seconds since the epoch."""
    return bound_to(volume, annotations={marks.LOST_ANNOTATION: written(now)})


def returned(volume: PersistentVolume) -> MergePatch:
    """The mark taken away again."""
    return bound_to(volume, annotations={marks.LOST_ANNOTATION: None})


def routed(claim: PersistentVolumeClaim, key: str | None) -> MergePatch:
    """The label by which a node's agent finds the claim; None takes it away."""
    return bound_to(claim, labels={marks.NODE_LABEL: key})


def rescheduled(claim: PersistentVolumeClaim) -> MergePatch:
    """Without its selected node, and so without the label of it."""
    annotations = {claims.SELECTED_NODE_ANNOTATION: None}
    return bound_to(claim, annotations=annotations, labels={marks.NODE_LABEL: None})
