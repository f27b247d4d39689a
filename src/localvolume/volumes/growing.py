"""The patches that record a volume's growth on its PersistentVolume and its claim."""

from __future__ import annotations

from localvolume.kube.client import MergePatch
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes.capacity import quantity
from localvolume.volumes.moments import written
from localvolume.volumes.patches import bound_to

_IN_PROGRESS = "ControllerResizeInProgress"
"""The Kubernetes API's status for a volume that something other than the kubelet grows."""

_RESIZING = frozenset({"Resizing", "FileSystemResizePending"})


def grown(volume: PersistentVolume, size_bytes: int) -> MergePatch:
    """Sets the PersistentVolume's capacity to the current size of its volume."""
    patch = bound_to(volume)
    return MergePatch({**patch.body, "spec": {"capacity": {"storage": quantity(size_bytes)}}})


def resizing(claim: PersistentVolumeClaim, size_bytes: int, now: float) -> MergePatch | None:
    """Sets the claim's status while its volume grows; None if the status is right already.

    Sets the target size and the progress, for tools and quotas, and the condition that `kubectl
    describe` shows. Leaves the conditions alone if there are any: we do not read them whole, so we
    could not write them back.
    """
    status: dict[str, object] = {}
    allocated = {"storage": quantity(size_bytes)}
    if (claim.status.allocated_resources.get("storage"), _state(claim)) != (
        allocated["storage"],
        _IN_PROGRESS,
    ):
        status["allocatedResources"] = allocated
        status["allocatedResourceStatuses"] = {"storage": _IN_PROGRESS}
    if not claim.status.conditions:
        condition = {"type": "Resizing", "status": "True", "lastTransitionTime": written(now)}
        status["conditions"] = [condition]
    return MergePatch({**bound_to(claim).body, "status": status}) if status else None


def claim_grown(claim: PersistentVolumeClaim, size_bytes: int) -> MergePatch:
    """Sets the claim's capacity to the current size of its volume, and ends the resizing status.

    Leaves the status as external-resizer does: allocatedResources stays, and counts for quotas as
    the request does.
    """
    status: dict[str, object] = {"capacity": {"storage": quantity(size_bytes)}}
    conditions = claim.status.conditions
    if conditions and all(one.type in _RESIZING for one in conditions):
        status["conditions"] = []
    if _state(claim):
        status["allocatedResourceStatuses"] = {"storage": None}
    return MergePatch({**bound_to(claim).body, "status": status})


def _state(claim: PersistentVolumeClaim) -> str:
    return claim.status.allocated_resource_statuses.get("storage", "")
