"""What is to be done next to move a volume to our CSI driver, and why not: pure.

Each step leaves something from which the next call of the command goes on. The data is never
touched, and no step is taken while a pod uses the claim.
"""

from __future__ import annotations

from localvolume.cli.moving.model import PROTECTION, Facts, Step, policy_of
from localvolume.csi.staging import options
from localvolume.csi.wire.errors import InvalidArgument
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import marks
from localvolume.volumes.objects import claim_of, is_being_deleted, is_csi, phase_of

_MODES = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})


def next_step(facts: Facts) -> Step:
    """The next step for the volume."""
    volume, former = facts.volume, facts.former
    if volume is None:
        return _absent(facts)
    moved = volume.metadata.annotations.get(marks.MOVED_ANNOTATION)
    if is_csi(volume):
        if former is not None and not _is_like(volume, former.seen):
            # While there is none, whoever may make objects may take the name.
            return Step("refuse", "its name has an object of another volume, node or claim by now")
        if moved is not None:
            return Step("wait", "its agent has not taken it over yet")
        if former is not None:
            return Step("forget", "its agent has taken it over")
        return Step("done", "it is a volume of the driver")
    if former is not None and former.seen.metadata.uid != volume.metadata.uid:
        return Step("refuse", "what was kept of it is of an earlier object of that name")
    if why := fault_of(volume) or _fault_of_use(facts, volume):
        return Step("refuse", why + _begun(volume))
    if former is None:
        return Step("keep", "the object can be made anew from that")
    if _has_changed(volume, former.seen):
        # Also while it is being deleted: the new object is to have what a person set meanwhile.
        return Step("keep", "the object was changed since it was written down")
    if volume.spec.persistent_volume_reclaim_policy != "Retain":
        return Step("retain", "whatever happens to the object, the data stays")
    if not is_being_deleted(volume):
        return Step("delete", "the source of an object never changes")
    return Step("let go", "nobody uses it")


def _has_changed(volume: PersistentVolume, former: PersistentVolume) -> bool:
    """Whether anybody else has changed what the new object takes over from what was kept."""
    return (
        policy_of(volume) != policy_of(former)
        or volume.spec.capacity != former.spec.capacity
        or volume.spec.mount_options != former.spec.mount_options
    )


def _absent(facts: Facts) -> Step:
    former, claim = facts.former, facts.claim
    if former is None:
        return Step("refuse", "there is no such PersistentVolume")
    if (why := fault_of(former.seen)) or former.seen.metadata.name != facts.name:
        return Step("refuse", f"what was kept of it is no volume that can be moved: {why}")
    if claim is None or is_being_deleted(claim):
        # Its end may have been meant or not: a person is to say.
        return Step("create", "its claim is gone: the data is kept", "Retain")
    return Step("create", "its object is gone", policy_of(former.seen))


def _is_like(volume: PersistentVolume, former: PersistentVolume) -> bool:
    """Whether the object is of the same volume on the same node for the same claim."""
    one, other = volume.metadata, former.metadata
    return (
        one.labels.get(marks.NODE_LABEL) == other.labels.get(marks.NODE_LABEL)
        and one.annotations.get(marks.POOL_ANNOTATION)
        == other.annotations.get(marks.POOL_ANNOTATION)
        and claim_of(volume) == claim_of(former)
    )


def fault_of(volume: PersistentVolume) -> str:
    """Why an object can never be moved, "" if it can."""
    notes, spec = volume.metadata.annotations, volume.spec
    maker = notes.get(marks.PROVISIONED_BY_ANNOTATION, "")
    if maker != marks.DYNAMIC_PROVISIONER or marks.POOL_ANNOTATION not in notes:
        return f"it was not made by {marks.DYNAMIC_PROVISIONER}, but by {maker or 'nobody'}"
    if marks.NODE_LABEL not in volume.metadata.labels:
        return f"it has no label {marks.NODE_LABEL}"
    if spec.local is None:
        return "it is not of the kind local"
    if others := sorted(set(volume.metadata.finalizers) - {marks.FINALIZER, PROTECTION}):
        return f"it has the finalizer {others[0]}, which is somebody else's"
    if others := sorted(set(spec.access_modes) - _MODES):
        return f"it has the access mode {others[0]}, which the driver does not serve"
    if spec.claim_ref is None or not spec.claim_ref.uid:
        return "no claim has it"
    return _fault_of_options(volume)


def _fault_of_options(volume: PersistentVolume) -> str:
    """The kubelet passes them on; the driver refuses those that it does not know."""
    local = volume.spec.local
    if volume.spec.volume_mode == "Block" or local is None:
        return ""
    try:
        options.read(volume.spec.mount_options, local.fs_type or "", read_only=False)
    except InvalidArgument as error:
        return f"its mount options: {error}"
    return ""


def _fault_of_use(facts: Facts, volume: PersistentVolume) -> str:
    """Why it cannot be moved now, "" if it can."""
    claim = facts.claim
    if phase_of(volume) != "Bound":
        return f"it is {phase_of(volume)}, not Bound"
    if claim is None:
        return "its claim is gone"
    if why := _fault_of_claim(volume, claim):
        return why
    if facts.pods:
        return f"pods use its claim: {', '.join(facts.pods)}: stop them first"
    if volume.metadata.labels[marks.NODE_LABEL] not in facts.serving:
        return (
            f"the kubelet of its node does not know {marks.CSI_DRIVER}: switch it on there"
            " (csi.enabled)"
        )
    return ""


def _fault_of_claim(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    if is_being_deleted(claim):
        return "its claim is being deleted"
    if claim.spec.volume_name != volume.metadata.name:
        return f"its claim names the volume {claim.spec.volume_name!r}"
    if any(owner.kind == "Pod" for owner in claim.metadata.owner_references):
        return "its claim is a pod's own, and ends with that"
    return ""


def _begun(volume: PersistentVolume) -> str:
    if not is_being_deleted(volume):
        return ""
    return "; moving it is begun, and goes on when you run this again"
