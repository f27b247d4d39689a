"""The patches that tell of a volume's growing, on its PersistentVolume and its claim."""

from __future__ import annotations

from localvolume.kube.client import MergePatch
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes.capacity import quantity
from localvolume.volumes.moments import written
from localvolume.volumes.patches import bound_to

_IN_PROGRESS = "ControllerResizeInProgress"
"""The Kubernetes API's word for what is grown by others than the node's kubelet."""

_RESIZING = frozenset({"Resizing", "FileSystemResizePending"})


def grown(volume: PersistentVolume, size_bytes: int) -> MergePatch:
    """The PersistentVolume with the size that its volume has now."""
    patch = bound_to(volume)
    return MergePatch({**patch.body, "spec": {"capacity": {"storage": quantity(size_bytes)}}})


def resizing(claim: PersistentVolumeClaim, size_bytes: int, now: float) -> MergePatch | None:
    """What the claim's status says meanwhile; None where it does.

    That is to what it grows and how far it is, for tools and quotas, and the condition that
    `kubectl describe` shows. Where others are, which we do not read whole and so cannot write back,
    they stay alone.
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
    """The claim's status with what its volume has now, and no word of resizing any more.

    As external-resizer leaves it: what was allocated for it stays, and counts for quotas as the
    request does.
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
