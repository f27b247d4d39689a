"""The patches that record on a PersistentVolume and its claim which attributes a volume has.

They leave status, conditions and names as external-resizer's modify controller does, since tools
read them.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from localvolume.kube.client import JsonPatch, MergePatch
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes.moments import written
from localvolume.volumes.patches import bound_to, of_status

Status = Literal["Pending", "InProgress", "Infeasible"]

_MODIFYING: Final = "ModifyingVolume"
_FAILED: Final = "ModifyVolumeError"
_OURS: Final = frozenset({_MODIFYING, _FAILED})
_LONGEST: Final = 1000
"""How many characters of a reason are kept on the claim."""


def class_of(claim: PersistentVolumeClaim) -> str:
    """The VolumeAttributesClass that the claim asks for, "" for none."""
    return claim.spec.volume_attributes_class_name or ""


def current_of(claim: PersistentVolumeClaim) -> str:
    """The VolumeAttributesClass that the claim's volume is said to have, "" for none."""
    return claim.status.current_volume_attributes_class_name or ""


def class_of_volume(volume: PersistentVolume) -> str:
    """The VolumeAttributesClass that the PersistentVolume has, "" for none."""
    return volume.spec.volume_attributes_class_name or ""


def is_told(claim: PersistentVolumeClaim, target: str, status: Status) -> bool:
    """Whether the claim's status says that already."""
    said = claim.status.modify_volume_status
    return said is not None and (
        (said.target_volume_attributes_class_name, said.status) == (target, status)
    )


def failure_of(claim: PersistentVolumeClaim) -> str:
    """Why the claim says that the change is no further, "" if it says nothing of that."""
    return "; ".join(one.message or "" for one in claim.status.conditions if one.type == _FAILED)


def told(
    claim: PersistentVolumeClaim, target: str, status: Status, why: str, now: float
) -> JsonPatch:
    """Sets how far the change to the class `target` is, and `why` it is no further."""
    condition = {
        "type": _MODIFYING if status == "InProgress" else _FAILED,
        "status": "True",
        "lastTransitionTime": written(now),
        **({"message": why[:_LONGEST]} if why else {}),
    }
    said = {"targetVolumeAttributesClassName": target, "status": status}
    return of_status(claim, {"modifyVolumeStatus": said}, ours=_OURS, condition=condition)


def modified_volume(volume: PersistentVolume, name: str) -> MergePatch:
    """Sets the PersistentVolume's class to the one that its volume has now."""
    patch = bound_to(volume)
    return MergePatch({**patch.body, "spec": {"volumeAttributesClassName": name}})


def modified_claim(claim: PersistentVolumeClaim, name: str) -> JsonPatch:
    """Says which class the volume has now, "" for none, and ends the change."""
    fields: dict[str, Any] = {}
    if claim.status.modify_volume_status is not None:
        fields["modifyVolumeStatus"] = None
    if name:
        fields["currentVolumeAttributesClassName"] = name
    return of_status(claim, fields, ours=_OURS)
