"""The patches that tell of a volume's growing, on its PersistentVolume and its claim."""

from __future__ import annotations

from localvolume.kube.client import MergePatch
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes.capacity import quantity
from localvolume.volumes.moments import written
from localvolume.volumes.patches import bound_to

_RESIZING = frozenset({"Resizing", "FileSystemResizePending"})


def grown(volume: PersistentVolume, size_bytes: int) -> MergePatch:
    """The PersistentVolume with the size that its volume has now."""
    patch = bound_to(volume)
    return MergePatch({**patch.body, "spec": {"capacity": {"storage": quantity(size_bytes)}}})


def resizing(claim: PersistentVolumeClaim, now: float) -> MergePatch | None:
    """The condition that `kubectl describe` shows meanwhile; None where it is there, or where
    others are, which we do not read whole and so cannot write back."""
    if claim.status.conditions:
        return None
    condition = {"type": "Resizing", "status": "True", "lastTransitionTime": written(now)}
    return MergePatch({**bound_to(claim).body, "status": {"conditions": [condition]}})


def told(claim: PersistentVolumeClaim, size_bytes: int) -> MergePatch:
    """The claim's status with what its volume has now, and no word of resizing any more."""
    status: dict[str, object] = {"capacity": {"storage": quantity(size_bytes)}}
    conditions = claim.status.conditions
    if conditions and all(one.type in _RESIZING for one in conditions):
        status["conditions"] = []
    return MergePatch({**bound_to(claim).body, "status": status})
