"""When a FlexVolume PersistentVolume is deleted: pure; a table of rules, the first answer counts.

This is about the object only: the node's agent deals with what is on its disk. The agent holds the
object with our finalizer, from before the first mount until it has noted that the volume may go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from localvolume.flexvolume.plan.provision import Action, Keep
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import affinity, marks
from localvolume.volumes.objects import claim_of, is_being_deleted, is_finalized, phase_of

Volume = PersistentVolume

EVENT_FAILED_DELETE = "VolumeFailedDelete"
EVENT_PUT_RIGHT = "VolumePutRight"


@dataclass(frozen=True, slots=True)
class Hold(Action):
    """Nothing can be done about the volume: say so on it (EVENT_FAILED_DELETE)."""

    volume: Volume


@dataclass(frozen=True, slots=True)
class Delete(Action):
    """Delete the object; if `secure`, first add our finalizer, which holds it for its agent."""

    volume: Volume
    secure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeFacts:
    """`node` is the name of the Node that the volume is on, if that exists; `claim` the very claim
    that it names, if that is still there. For a volume on a node without our label, `why_not` says
    why it gets none, "" if it will."""

    served: Collection[str]
    node: str = ""
    why_not: str = ""
    claim: PersistentVolumeClaim | None = None


def judge_volume(facts: VolumeFacts, volume: Volume) -> Action:
    """The one action that a PersistentVolume calls for: Keep, Hold or Delete."""
    return next(answer for rule in _VOLUME_RULES if (answer := rule(facts, volume)))


def of_others(facts: VolumeFacts, volume: Volume) -> Action | None:
    provisioner = volume.metadata.annotations.get(marks.PROVISIONED_BY_ANNOTATION, "")
    source = volume.spec.flex_volume
    if source is None or provisioner not in facts.served:
        return Keep("it was not made by us")
    if source.driver != provisioner:
        return Keep(f"{provisioner} made it, but its driver is another")
    return None


def on_its_way(_facts: VolumeFacts, volume: Volume) -> Action | None:
    return Keep("it is being deleted") if is_being_deleted(volume) else None


def wanted(facts: VolumeFacts, volume: Volume) -> Action | None:
    phase, policy = phase_of(volume), volume.spec.persistent_volume_reclaim_policy
    if phase not in ("Released", "Failed"):
        return Keep(f"its phase is {phase}")
    if policy != "Delete":
        return Keep(f"its reclaim policy is {policy}")
    if phase == "Failed":
        return Hold("its phase is Failed: somebody must look", volume)
    if not claim_of(volume):
        return Keep("its claimRef was emptied, so that a claim can have it again")
    if facts.claim is not None:
        return Keep("its claim is still there")
    return None


def unwanted(facts: VolumeFacts, volume: Volume) -> Action:
    reason = "its claim is gone"
    if marks.NODE_LABEL in volume.metadata.labels:
        if not facts.node:
            return Keep("its node is lost")
        return Delete(reason, volume, secure=not is_finalized(volume))
    if not affinity.required_terms(volume):
        return Delete(f"{reason}, and it was never mounted", volume, secure=False)
    if facts.why_not:
        return Hold(f"no agent can remove its data: {facts.why_not}", volume)
    return Keep("its node's agent does not know it yet")


_VOLUME_RULES: tuple[Callable[[VolumeFacts, Volume], Action | None], ...] = (
    of_others,
    on_its_way,
    wanted,
    unwanted,
)
