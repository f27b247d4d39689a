"""Which PersistentVolumes are dynamic ones that our agents serve, made by us or by others: pure."""

from __future__ import annotations

from collections.abc import Collection

from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.objects import is_csi


def is_on_a_disk(volume: PersistentVolume) -> bool:
    """Whether it is a directory or a device of a node: `local`, `hostPath` (from local-path), a
    FlexVolume (from elastic), or a volume of our CSI driver."""
    spec = volume.spec
    if spec.flex_volume is not None:
        return spec.flex_volume.driver in marks.FLEX_DRIVERS
    return spec.local is not None or spec.host_path is not None or is_csi(volume)


def provisioner_of(volume: PersistentVolume) -> str:
    """The provisioner that made it, by its annotation, or ""."""
    return volume.metadata.annotations.get(marks.PROVISIONED_BY_ANNOTATION, "")


def is_static(volume: PersistentVolume) -> bool:
    """Prepared, not made for a claim: no pool annotation, and its provisioner is static or none."""
    provisioner = provisioner_of(volume)
    made = is_csi(volume) or marks.POOL_ANNOTATION in volume.metadata.annotations
    return not made and (not provisioner or marks.is_of_static_provisioner(provisioner))


def is_dynamic(volume: PersistentVolume, provisioners: Collection[str]) -> bool:
    """Whether it was made for a claim, by one of our agents or by a provisioner that is served."""
    if not is_on_a_disk(volume):
        return False
    if volume.spec.flex_volume is not None:
        return volume.spec.flex_volume.driver in provisioners
    return is_csi(volume) or (
        marks.POOL_ANNOTATION in volume.metadata.annotations
        or provisioner_of(volume) in provisioners
    )


def maker_of(volume: PersistentVolume) -> str:
    """The name of the node on which it was made, if its provisioner wrote that down, or ""."""
    annotations, labels = volume.metadata.annotations, volume.metadata.labels
    return (
        annotations.get(marks.KUTTI_NODE_ANNOTATION)
        or annotations.get(marks.LOCAL_PATH_NODE_ANNOTATION)
        or labels.get(marks.ELASTIC_NODE_LABEL, "")
    )
