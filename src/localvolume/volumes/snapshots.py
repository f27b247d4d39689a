"""VolumeSnapshotContents: the names that external-snapshotter gave them, and whose each is.

pkg/utils/util.go and pkg/sidecar-controller of external-snapshotter. A content is told of in two
objects: it stands for what is on disk, and a namespace's VolumeSnapshot for what a person sees.
"""

from __future__ import annotations

from typing import Final

from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent, VolumeSnapshotContent
from localvolume.volumes.marks import NODE_LABEL

NODE_ANNOTATION: Final = NODE_LABEL
"""On a content: the key of the node that its snapshot is on, written before anything is cut.
Labels of contents are the snapshot-controller's."""

BEING_CREATED: Final = "snapshot.storage.kubernetes.io/volumesnapshot-being-created"
"""A snapshot may have been cut of which the content's status does not tell yet."""

BEING_DELETED: Final = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"
"""The snapshot-controller says that the content may go, as its VolumeSnapshot goes."""

MODE_CHANGE: Final = "snapshot.storage.kubernetes.io/allow-volume-mode-change"
"""On a content, "true": an administrator lets volumes with what the snapshot holds be of the other
volumeMode. No agent writes it."""

RESERVE_ANNOTATION: Final = "localvolume.dev/reserve"
"""On a content whose snapshot has a reserve that fills: a sentence that says so."""

FINALIZER: Final = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"

GROUP_BEING_CREATED: Final = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-created"
GROUP_BEING_DELETED: Final = "groupsnapshot.storage.kubernetes.io/volumegroupsnapshot-being-deleted"
GROUP_FINALIZER: Final = (
    "groupsnapshot.storage.kubernetes.io/volumegroupsnapshotcontent-bound-protection"
)
"""The same of a VolumeGroupSnapshotContent."""

GROUP_ANNOTATION: Final = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle"
"""The content is one of a group, which is cut as a whole."""


AnyContent = VolumeSnapshotContent | VolumeGroupSnapshotContent


def owner_of(content: AnyContent) -> str:
    """The key of the node that has the snapshot or is to have it, "" while nobody has said so."""
    return content.metadata.annotations.get(NODE_ANNOTATION, "")


def is_ready(content: AnyContent) -> bool:
    """Whether volumes can be made with what the snapshot holds."""
    return content.status is not None and bool(content.status.ready_to_use)


def handle_in_status(content: VolumeSnapshotContent) -> str:
    """The handle of the snapshot, "" while none is known to be there."""
    return (content.status.snapshot_handle or "") if content.status is not None else ""


def group_in_status(content: VolumeGroupSnapshotContent) -> str:
    """The handle of the group, "" while none is known to be there."""
    status = content.status
    return (status.volume_group_snapshot_handle or "") if status is not None else ""


def group_of(content: VolumeSnapshotContent) -> str:
    """The handle of the group that its snapshot is one of, "" for none."""
    said = content.status.volume_group_snapshot_handle if content.status is not None else None
    return said or content.metadata.annotations.get(GROUP_ANNOTATION, "")


def name_asked_for(content: VolumeSnapshotContent) -> str:
    """The name by which the snapshot of a volume is asked for. The VolumeSnapshot must be bound."""
    return f"snapshot-{content.spec.volume_snapshot_ref.uid}"
