"""The rules for claims that ask for the content of a claim or a snapshot: pure.

Only the node that has the content can serve them. It does so at once, whichever node was selected:
the PersistentVolume names the claim, and the scheduler follows it.
"""

from __future__ import annotations

from localvolume.backends.model import Record
from localvolume.backends.modes import no_mode_change
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.calls import Refused
from localvolume.dynamic.model import Action, Hold, Keep, Unprotect
from localvolume.dynamic.plan.calls.content import is_source, uncopied
from localvolume.dynamic.plan.calls.finding import find
from localvolume.dynamic.plan.given import kept_from
from localvolume.dynamic.plan.placing import VolumeMode
from localvolume.dynamic.plan.world import Found, World, mode_of
from localvolume.kube.cache import key_of
from localvolume.kube.objects import PersistentVolumeClaim
from localvolume.volumes import claims
from localvolume.volumes.objects import is_being_deleted, is_csi
from localvolume.volumes.snapshots import MODE_CHANGE

Claim = PersistentVolumeClaim


def follows(world: World, claim: Claim) -> bool:
    """Whether it is served where the content lies that it asks for, whatever node is selected."""
    class_facts = world.facts.classes.get(claims.class_of(claim))
    return (
        class_facts is not None
        and class_facts.object.provisioner == CSI_DRIVER
        and claims.is_copy(claim)
        and claims.provisioner_of(claim) in ("", CSI_DRIVER)
    )


def held(claim: Claim, reason: str) -> Hold:
    """It is not given back: no other node could serve it."""
    key = claims.volume_name(claim.metadata.uid)
    return Hold(key=key, reason=reason, claim=claim, event="ProvisioningFailed")


def origin_of(world: World, claim: Claim, size: int) -> Found | Action:
    """What has the content that the claim asks for; or what is said instead."""
    told = world.facts.origins.get(claim.metadata.uid)
    if told is None:
        key = claims.volume_name(claim.metadata.uid)
        return Keep(key=key, reason="the content that it asks for is being looked up")
    if told.problem:
        return held(claim, told.problem)
    node, what = world.facts.node.name, "snapshot" if told.snapshot else "volume"
    try:
        found = find(world, told.handle)
    except Refused as refusal:
        return held(claim, f"node {node}: {what} {told.handle}: {refusal}")
    if found is None or not is_source(found.record, snapshot=told.snapshot):
        return held(claim, f"node {node} has no {what} {told.handle}")
    if told.cut_of and found.record.snapshot_of != told.cut_of:
        text = f"of volume {found.record.snapshot_of}, and not of {told.cut_of}"
        return held(claim, f"node {node}: snapshot {told.handle} is {text}")
    if not told.snapshot:
        for volume in world.volumes_of(told.handle):
            if why := kept_from(volume, found.record):
                return held(claim, f"volume {told.handle} is kept from its claim: {why}")
    mode, wish = mode_of(claim), world.class_of(claim).wish
    if why := uncopied(found, mode, size, wish, other_mode=told.other_mode):
        if told.snapshot and not told.other_mode and may_be_allowed(found.record, mode):
            why += f'; the annotation {MODE_CHANGE}: "true" of its VolumeSnapshotContent allows it'
        return held(claim, why)
    return found


def may_be_allowed(record: Record, mode: VolumeMode) -> bool:
    """Whether all that a volume of another mode lacks is an administrator's leave."""
    return record.volume_mode != mode and not no_mode_change(record, mode)


# --- the claim that is cloned ------------------------------------------------------------------


def unprotected(world: World, claim: Claim) -> Unprotect | None:
    """A claim is kept only as long as a volume with its content is being made."""
    if claims.CLONING_FINALIZER not in claim.metadata.finalizers:
        return None
    volume = world.facts.volumes.get(claim.spec.volume_name)
    ours = claims.provisioner_of(claim) == CSI_DRIVER or (volume is not None and is_csi(volume))
    if not ours or any(_needs(world, clone, claim) for clone in world.clones_of(claim)):
        return None
    return Unprotect(
        key=claim.spec.volume_name,
        reason=f"no clone of claim {key_of(claim)} is being made any more",
        claim=claim,
    )


def _needs(world: World, clone: Claim, claim: Claim) -> bool:
    """Whether the clone still needs what the claim has."""
    name = claims.volume_name(clone.metadata.uid)
    if name in world.facts.busy:
        return True
    begun = bool(world.records_of(name))
    if is_being_deleted(clone):
        return False
    return begun or not is_being_deleted(claim)
