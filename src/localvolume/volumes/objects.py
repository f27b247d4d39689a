"""Reads a PersistentVolume in one place: claims, affinity, identity, our own marks."""

from __future__ import annotations

from collections.abc import Iterable

from localvolume.kube.objects import KubeObject, PersistentVolume
from localvolume.volumes import affinity, marks
from localvolume.volumes.identity import Identity, from_annotation


def is_finalized(volume: PersistentVolume) -> bool:
    """Whether the object stays until an agent has done what its deletion asks for."""
    return marks.FINALIZER in volume.metadata.finalizers


def is_being_deleted(thing: KubeObject) -> bool:
    return thing.metadata.deletion_timestamp is not None


def phase_of(volume: PersistentVolume) -> str:
    return volume.status.phase or "Pending"


def is_static(volume: PersistentVolume) -> bool:
    """Whether an administrator prepared the volume before the object was made."""
    return not is_dynamic(volume) and not is_flexvolume(volume)


def claim_of(volume: PersistentVolume) -> str:
    """The UID of the claim that holds the volume or held it last, or "" if none did.

    A claimRef without a UID only reserves the volume for a claim that may never come.
    """
    return volume.spec.claim_ref.uid if volume.spec.claim_ref else ""


def claims_of(volume: PersistentVolume) -> frozenset[str]:
    """The UIDs of the claims that hold or held the volume, as far as the object says."""
    known = {claim_of(volume), volume.metadata.annotations.get(marks.CLAIMED_ANNOTATION, "")}
    return frozenset(known - {""})


def generation_of(volume: PersistentVolume) -> str:
    """Which hand-over of the volume it is, "" for an object from before there were records."""
    return volume.metadata.annotations.get(marks.GENERATION_ANNOTATION, "")


def is_held_by_claim(volume: PersistentVolume) -> bool:
    """Whether a claim has the volume or is about to get it.

    The binder writes claimRef first and the phase Bound later. Only the phase Released (or Failed)
    says that the claim in claimRef is gone.
    """
    phase = phase_of(volume)
    return phase == "Bound" or bool(claim_of(volume) and phase not in ("Released", "Failed"))


def ever_claimed(volume: PersistentVolume) -> bool:
    """Whether a claim may have left data, even if somebody has cleared claimRef since."""
    annotations = volume.metadata.annotations
    return bool(
        claim_of(volume)
        or marks.CLAIMED_ANNOTATION in annotations
        or marks.BOUND_BY_CONTROLLER_ANNOTATION in annotations
    )


def is_on_offer(volume: PersistentVolume) -> bool:
    """Whether any claim may get the volume, and none has had it."""
    free = phase_of(volume) in ("Pending", "Available")
    return free and not is_being_deleted(volume) and not ever_claimed(volume)


def is_to_be_cleaned(volume: PersistentVolume) -> bool:
    """Whether its deletion asks for a cleaning: its policy says so, and a claim had it and is gone.

    A claim that names the object may still get the volume while the object is being deleted.
    """
    return (
        is_being_deleted(volume)
        and is_finalized(volume)
        and volume.spec.persistent_volume_reclaim_policy == "Delete"
        and ever_claimed(volume)
        and not is_held_by_claim(volume)
    )


def path_of(volume: PersistentVolume) -> str:
    """The volume's path on the host, or "" for a volume that is not of the `local` kind."""
    return volume.spec.local.path if volume.spec.local else ""


def is_dynamic(volume: PersistentVolume) -> bool:
    """Whether it was made for a claim, by us or by an older provisioner of that kind.

    False for FlexVolume: there, the driver makes the volume when it is first mounted. True for all
    volumes of our CSI driver: it serves none that an administrator prepared.
    """
    if is_flexvolume(volume):
        return False
    if is_csi(volume):
        return True
    annotations = volume.metadata.annotations
    provisioner = annotations.get(marks.PROVISIONED_BY_ANNOTATION, "")
    return marks.POOL_ANNOTATION in annotations or bool(
        provisioner and not marks.is_of_static_provisioner(provisioner)
    )


def is_flexvolume(volume: PersistentVolume) -> bool:
    """Whether the kubelet mounts it through a driver's client. Other roles leave it alone."""
    return volume.spec.flex_volume is not None


def is_csi(volume: PersistentVolume) -> bool:
    """Whether pods use it through our CSI driver: its path is in its pool's record, not here."""
    return volume.spec.csi is not None and volume.spec.csi.driver == marks.CSI_DRIVER


def record_name_of(volume: PersistentVolume) -> str:
    """The name of its record in its pool: the handle of a volume of our CSI driver, else its own.

    Both are the same, unless another provisioner made the object.
    """
    if volume.spec.csi is not None and is_csi(volume):
        return volume.spec.csi.volume_handle
    return volume.metadata.name


def volumes_of_claims(objects: Iterable[PersistentVolume]) -> frozenset[tuple[str, str]]:
    """The volumes that claims have by PersistentVolumes of this node: namespaces with handles.

    A handle alone says nothing. What lies in a pool and has no PersistentVolume is no claim's, and
    who has taken over another node can make a PersistentVolume of its handle there. A volume whose
    PersistentVolume is this node's belongs here even if its pool cannot be looked at: then the call
    for its snapshot says why it has to wait.
    """
    return frozenset(
        (one.spec.claim_ref.namespace, one.spec.csi.volume_handle)
        for one in objects
        if one.spec.csi is not None and is_csi(one) and one.spec.claim_ref is not None
    )


def recorded_identity(volume: PersistentVolume) -> Identity | None:
    """The identity recorded when it was published. Raises ValueError if it is unreadable."""
    return from_annotation(volume.metadata.annotations.get(marks.IDENTITY_ANNOTATION))


def is_on_node(volume: PersistentVolume, hostname: str) -> bool:
    """Whether the volume's required affinity names the node of that hostname.

    Any one term suffices; within a term, every list of hostnames must contain it.
    """
    terms = affinity.required_terms(volume)
    return any(hostname in (affinity.hostnames_of(term) or ()) for term in terms)
