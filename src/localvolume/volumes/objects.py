"""What a PersistentVolume says, read in one place: claims, affinity, identity, our own marks."""

from __future__ import annotations

import msgspec

from localvolume.kube.objects import PersistentVolume, VolumeNodeAffinity
from localvolume.volumes import marks
from localvolume.volumes.identity import Identity, from_annotation


def is_finalized(volume: PersistentVolume) -> bool:
    """Whether the object stays until an agent has done what its deletion asks for."""
    return marks.FINALIZER in volume.metadata.finalizers


def is_being_deleted(volume: PersistentVolume) -> bool:
    return volume.metadata.deletion_timestamp is not None


def phase_of(volume: PersistentVolume) -> str:
    return volume.status.phase or "Pending"


def claim_of(volume: PersistentVolume) -> str:
    """The UID of the claim that holds or held the volume last, or "" where none did.

    A claimRef without a UID only reserves the volume for a claim that may never come.
    """
    return volume.spec.claim_ref.uid if volume.spec.claim_ref else ""


def is_held_by_claim(volume: PersistentVolume) -> bool:
    """Whether a claim has the volume or is just getting it.

    The binder writes claimRef first and the phase Bound later; only Released (or Failed) says that
    the claim it names is gone.
    """
    phase = phase_of(volume)
    return phase == "Bound" or bool(claim_of(volume) and phase not in ("Released", "Failed"))


def ever_claimed(volume: PersistentVolume) -> bool:
    """Whether a claim may have left data, also when somebody has emptied claimRef since."""
    annotations = volume.metadata.annotations
    return bool(
        claim_of(volume)
        or marks.CLAIMED_ANNOTATION in annotations
        or marks.BOUND_BY_CONTROLLER_ANNOTATION in annotations
    )


def path_of(volume: PersistentVolume) -> str:
    """The volume's path on the host, or "" for a volume that is not of the `local` kind."""
    return volume.spec.local.path if volume.spec.local else ""


def recorded_identity(volume: PersistentVolume) -> Identity | None:
    """What was written down when it was published; ValueError where that is unreadable."""
    return from_annotation(volume.metadata.annotations.get(marks.IDENTITY_ANNOTATION))


def is_on_node(volume: PersistentVolume, hostname: str) -> bool:
    """Whether the volume's required affinity names the node of that hostname.

    Any one term suffices; within a term, every list of hostnames must have it.
    """
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        affinity = _alpha_affinity(volume)
    if affinity is None or affinity.required is None:
        return False
    for term in affinity.required.node_selector_terms:
        lists = [
            expression.values
            for expression in term.match_expressions
            if expression.key == marks.HOSTNAME_LABEL and expression.operator == "In"
        ]
        if lists and all(hostname in values for values in lists):
            return True
    return False


def _alpha_affinity(volume: PersistentVolume) -> VolumeNodeAffinity | None:
    text = volume.metadata.annotations.get(marks.ALPHA_AFFINITY_ANNOTATION)
    if text is None:
        return None
    try:
        raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        required = raw.get("requiredDuringSchedulingIgnoredDuringExecution")
        if required is None:
            return None
        wrapped = b'{"required":' + bytes(required) + b"}"
        return msgspec.json.decode(wrapped, type=VolumeNodeAffinity)
    except msgspec.MsgspecError:
        return None
