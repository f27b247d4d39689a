"""The patches that record a volume's growth on its PersistentVolume and its claim.

They leave status and conditions as external-resizer does, since tools read them.
"""

from __future__ import annotations

from typing import Final

from localvolume.kube.client import JsonPatch, MergePatch
from localvolume.kube.objects import Condition, PersistentVolume, PersistentVolumeClaim
from localvolume.volumes.capacity import bytes_of, quantity
from localvolume.volumes.moments import moment, written
from localvolume.volumes.patches import bound_to, of_status

_IN_PROGRESS: Final = "ControllerResizeInProgress"
"""The Kubernetes API's status for a volume that something other than the kubelet grows."""

_INFEASIBLE: Final = "ControllerResizeInfeasible"
"""And for one that cannot be that large: who owns the claim may ask for less, or wait."""

_RESIZING: Final = "Resizing"
_FAILED: Final = "ControllerResizeError"
_UNDER_WAY: Final = frozenset({_RESIZING, "FileSystemResizePending"})
_OURS: Final = _UNDER_WAY | {_FAILED, "NodeResizeError"}
_LONGEST: Final = 1000
"""How many characters of a reason are kept on the claim."""
_SAID_SECONDS: Final = 300.0
"""How long a reason stays on the claim before another one takes its place."""


def grown(volume: PersistentVolume, size_bytes: int) -> MergePatch:
    """Sets the PersistentVolume's capacity to the current size of its volume."""
    patch = bound_to(volume)
    return MergePatch({**patch.body, "spec": {"capacity": {"storage": quantity(size_bytes)}}})


def resizing(claim: PersistentVolumeClaim, size_bytes: int, now: float) -> JsonPatch | None:
    """Sets the claim's status while its volume grows; None if the status is right already.

    Sets the target size and the progress, for tools and quotas, and the condition that `kubectl
    describe` shows.
    """
    said = {one.type for one in claim.status.conditions} & _OURS
    if _allocated(claim) == (size_bytes, _IN_PROGRESS) and said and said <= _UNDER_WAY:
        return None
    condition = {"type": _RESIZING, "status": "True", "lastTransitionTime": written(now)}
    return of_status(claim, _told(size_bytes, _IN_PROGRESS), ours=_OURS, condition=condition)


def is_infeasible(claim: PersistentVolumeClaim, size_bytes: int, why: str, now: float) -> bool:
    """Whether the claim says already that its volume cannot be that large, and why.

    The room that is left changes with each write to the disk, and the reason with it: what was said
    in the last five minutes is good enough. An API server that keeps no such states (before 1.32)
    is told by the condition alone.
    """
    if _allocated(claim) not in ((None, ""), (size_bytes, _INFEASIBLE)):
        return False
    return any(
        one.message == why[:_LONGEST] or _is_recent(one, now)
        for one in claim.status.conditions
        if one.type == _FAILED
    )


def _is_recent(condition: Condition, now: float) -> bool:
    said = moment(condition.last_transition_time or "")
    return said is not None and 0 <= now - said < _SAID_SECONDS


def failure_of(claim: PersistentVolumeClaim) -> str:
    """Why the claim says that its volume does not grow, "" if it does not say so."""
    return "; ".join(one.message or "" for one in claim.status.conditions if one.type == _FAILED)


def infeasible(claim: PersistentVolumeClaim, size_bytes: int, why: str, now: float) -> JsonPatch:
    """Sets on the claim that its volume cannot be that large, and why."""
    condition = {
        "type": _FAILED,
        "status": "True",
        "lastTransitionTime": written(now),
        "message": why[:_LONGEST],
    }
    return of_status(claim, _told(size_bytes, _INFEASIBLE), ours=_OURS, condition=condition)


def claim_grown(claim: PersistentVolumeClaim, size_bytes: int) -> JsonPatch:
    """Sets the claim's capacity to the current size of its volume, and ends the resizing status.

    allocatedResources stays, and counts for quotas as the request does.
    """
    fields: dict[str, object] = {"capacity": {"storage": quantity(size_bytes)}}
    if claim.status.allocated_resource_statuses:
        fields["allocatedResourceStatuses"] = None
    return of_status(claim, fields, ours=_OURS)


def _told(size_bytes: int, state: str) -> dict[str, object]:
    return {
        "allocatedResources": {"storage": quantity(size_bytes)},
        "allocatedResourceStatuses": {"storage": state},
    }


def _allocated(claim: PersistentVolumeClaim) -> tuple[int | None, str]:
    """To how many bytes the volume was last told to grow, and how far that is.

    The API server keeps a quantity in a form of its own: 25G for 25000000000.
    """
    status = claim.status
    return (
        bytes_of(status.allocated_resources.get("storage", "")),
        status.allocated_resource_statuses.get("storage", ""),
    )
