"""Whether a claim's volume is to grow, and what prevents it: pure."""

from __future__ import annotations

from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.kinds import SeenEvent
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import claims
from localvolume.volumes.capacity import bytes_of

FAILED = "VolumeResizeFailed"
_ENDS = (FAILED, "VolumeResizeSuccessful")


def is_to_grow(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Whether the claim asks for more than it has, or its status does not have the new size yet."""
    asked = claims.requested_bytes(claim) or 0
    has = bytes_of(volume.spec.capacity.get("storage", "")) or 0
    told = bytes_of(claim.status.capacity.get("storage", "")) or 0
    return max(asked, has) > min(has, told)


def failure(facts: Facts, claim: PersistentVolumeClaim) -> SeenEvent | None:
    """The Event of the last attempt, if that failed. The next attempt may have begun since."""
    said = facts.events_about("PersistentVolumeClaim", claim)
    last = next((one for one in said if one.reason in _ENDS), None)
    return last if last is not None and last.reason == FAILED else None
