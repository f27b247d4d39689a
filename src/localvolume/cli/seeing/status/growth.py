"""Whether a claim's volume is to grow, and what prevents it: pure."""

from __future__ import annotations

from localvolume.cli.seeing.facts import Facts
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import claims
from localvolume.volumes.capacity import bytes_of
from localvolume.volumes.growing import failure_of

FAILED = "VolumeResizeFailed"
_ENDS = (FAILED, "VolumeResizeSuccessful")


def is_to_grow(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Whether the claim asks for more than it has, or its status does not have the new size yet."""
    asked = claims.requested_bytes(claim) or 0
    has = bytes_of(volume.spec.capacity.get("storage", "")) or 0
    told = bytes_of(claim.status.capacity.get("storage", "")) or 0
    return max(asked, has) > min(has, told)


def failure(facts: Facts, claim: PersistentVolumeClaim) -> str:
    """Why it cannot grow, by its status, or by the Event of the last attempt, if that failed; else
    "". Events are gone after an hour. The next attempt may have begun since."""
    if why := failure_of(claim):
        return why
    said = facts.events_about("PersistentVolumeClaim", claim)
    last = next((one for one in said if one.reason in _ENDS), None)
    return last.message if last is not None and last.reason == FAILED else ""
