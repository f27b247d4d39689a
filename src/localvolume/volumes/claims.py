"""Reads a claim in one place: who serves it, what it asks for, and on which node."""

from __future__ import annotations

from typing import Any, Final, Literal

from localvolume.config.provisioner import CSI_DRIVER
from localvolume.kube.objects import DataSource, PersistentVolumeClaim
from localvolume.volumes.capacity import bytes_of

PROVISIONER_ANNOTATION = "volume.kubernetes.io/storage-provisioner"
BETA_PROVISIONER_ANNOTATION = "volume.beta.kubernetes.io/storage-provisioner"
BETA_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"

CLONING_FINALIZER = "provisioner.storage.kubernetes.io/cloning-protection"
"""Keeps a claim while volumes with its content are being made: as external-provisioner does."""

_ONE_NODE: Final = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})


def provisioner_of(claim: PersistentVolumeClaim) -> str:
    """The provisioner that kube-controller-manager asks to serve the claim, or ""."""
    annotations = claim.metadata.annotations
    found = annotations.get(PROVISIONER_ANNOTATION)
    return annotations.get(BETA_PROVISIONER_ANNOTATION, "") if found is None else found


def class_of(claim: PersistentVolumeClaim) -> str:
    """The name of the claim's StorageClass, or ""; the beta annotation takes precedence."""
    found = claim.metadata.annotations.get(BETA_CLASS_ANNOTATION)
    return (claim.spec.storage_class_name or "") if found is None else found


def selected_node(claim: PersistentVolumeClaim) -> str:
    """The node that the scheduler chose for the claim's first pod, or ""."""
    return claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION, "")


def requested_bytes(claim: PersistentVolumeClaim) -> int | None:
    """How many bytes it asks for; None if that is not a valid quantity."""
    return bytes_of(claim.spec.resources.requests.get("storage", ""))


def volume_name(claim_uid: str) -> str:
    """The name of the PersistentVolume made for a claim, as every external provisioner names it."""
    return f"pvc-{claim_uid}"


def reference(claim: PersistentVolumeClaim) -> dict[str, Any]:
    """The claimRef of a PersistentVolume that is made for exactly this claim (core/v1)."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "resourceVersion": claim.metadata.resource_version,
    }


def source_of(claim: PersistentVolumeClaim) -> DataSource | None:
    """What its volume is to have the content of, if anything.

    `dataSourceRef` says all that `dataSource` does; that one says nothing of other namespaces.
    """
    return claim.spec.data_source_ref or claim.spec.data_source


def kind_of_source(source: DataSource) -> Literal["claim", "snapshot", "other"]:
    """Whether it is a claim, a VolumeSnapshot, or what only somebody's populator knows."""
    match (source.api_group or "", source.kind):
        case ("", "PersistentVolumeClaim"):
            return "claim"
        case ("snapshot.storage.k8s.io", "VolumeSnapshot"):
            return "snapshot"
        case _:
            return "other"


def is_copy(claim: PersistentVolumeClaim) -> bool:
    """Whether it asks for the content of a claim or a VolumeSnapshot, which lies on one node."""
    source = source_of(claim)
    return source is not None and kind_of_source(source) != "other"


def fault_of(claim: PersistentVolumeClaim, *, copies: bool = False) -> str:
    """Why a volume on a single node cannot satisfy the claim, or "". With `copies` it may have the
    content of a claim or a VolumeSnapshot; else it is empty.
    """
    spec = claim.spec
    if spec.selector is not None:
        return "a claim with a selector cannot have its volume made for it"
    source = source_of(claim)
    if source is not None and not (copies and is_copy(claim)):
        hint = f": only {CSI_DRIVER} clones and restores its own" if is_copy(claim) else ""
        return (
            f"volumes cannot be made from {source.kind or 'a source'} {source.name!r}{hint}; "
            "the volume would be empty"
        )
    if source is not None and source.namespace not in (None, "", claim.metadata.namespace):
        return (
            f"{source.kind} {source.name!r} is of namespace {source.namespace}: content is taken"
            " from the claim's own namespace alone"
        )
    others = sorted(set(spec.access_modes) - _ONE_NODE)
    if others:
        return f"access mode {', '.join(others)} is not possible: the volume is on one node"
    if (requested_bytes(claim) or 0) <= 0:
        return "it asks for no storage, or for what is no quantity"
    return ""
