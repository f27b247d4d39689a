"""The objects of the snapshot API, trimmed to the fields we use.

Those of groups are of groupsnapshot.storage.k8s.io/v1, the others of snapshot.storage.k8s.io/v1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import force_setattr

from localvolume.kube.objects import NO_STRINGS, KubeObject, StringMap, Strings, Trimmed


class SnapshotSource(Trimmed, frozen=True, kw_only=True):
    """Exactly one is set: the volume to cut a snapshot of, or the snapshot that is there."""

    volume_handle: str | None = None
    snapshot_handle: str | None = None


class SnapshotRef(Trimmed, frozen=True, kw_only=True):
    """The VolumeSnapshot that a content is for; no `uid`: it is not bound to it yet."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class VolumeSnapshotContentSpec(Trimmed, frozen=True, kw_only=True):
    """`deletion_policy` is Delete or Retain."""

    driver: str = ""
    deletion_policy: str = ""
    source: SnapshotSource = SnapshotSource()
    volume_snapshot_class_name: str | None = None
    volume_snapshot_ref: SnapshotRef = SnapshotRef()


class SnapshotError(Trimmed, frozen=True, kw_only=True):
    message: str | None = None


class VolumeSnapshotContentStatus(Trimmed, frozen=True, kw_only=True):
    snapshot_handle: str | None = None
    ready_to_use: bool | None = None
    error: SnapshotError | None = None
    volume_group_snapshot_handle: str | None = None


class VolumeSnapshotContent(KubeObject, frozen=True, kw_only=True):
    """Cluster-scoped. `status` is None until somebody has written it."""

    spec: VolumeSnapshotContentSpec = VolumeSnapshotContentSpec()
    status: VolumeSnapshotContentStatus | None = None


class VolumeSnapshotClass(KubeObject, frozen=True, kw_only=True):
    """Cluster-scoped."""

    driver: str = ""
    parameters: StringMap = NO_STRINGS

    def __post_init__(self) -> None:
        if not self.parameters:
            force_setattr(self, "parameters", NO_STRINGS)


class VolumeSnapshotStatus(Trimmed, frozen=True, kw_only=True):
    bound_volume_snapshot_content_name: str | None = None
    ready_to_use: bool | None = None


class VolumeSnapshot(KubeObject, frozen=True, kw_only=True):
    """`status` is None until the snapshot-controller has written it."""

    status: VolumeSnapshotStatus | None = None


class GroupHandles(Trimmed, frozen=True, kw_only=True):
    """A group that is there already, and its snapshots."""

    volume_group_snapshot_handle: str = ""
    volume_snapshot_handles: Strings = ()

    def __post_init__(self) -> None:
        if not self.volume_snapshot_handles:
            force_setattr(self, "volume_snapshot_handles", ())


class GroupSource(Trimmed, frozen=True, kw_only=True):
    """Exactly one is set: the volumes to cut snapshots of, or the group that is there."""

    volume_handles: Strings = ()
    group_snapshot_handles: GroupHandles | None = None

    def __post_init__(self) -> None:
        if not self.volume_handles:
            force_setattr(self, "volume_handles", ())


class VolumeGroupSnapshotContentSpec(Trimmed, frozen=True, kw_only=True):
    """As of a VolumeSnapshotContent."""

    driver: str = ""
    deletion_policy: str = ""
    source: GroupSource = GroupSource()
    volume_group_snapshot_class_name: str | None = None
    volume_group_snapshot_ref: SnapshotRef = SnapshotRef()


class SnapshotInfo(Trimmed, frozen=True, kw_only=True):
    snapshot_handle: str = ""


if TYPE_CHECKING:
    SnapshotInfos = tuple[SnapshotInfo, ...]
else:
    SnapshotInfos = tuple[SnapshotInfo, ...] | None


class VolumeGroupSnapshotContentStatus(Trimmed, frozen=True, kw_only=True):
    volume_group_snapshot_handle: str | None = None
    volume_snapshot_info_list: SnapshotInfos = ()
    ready_to_use: bool | None = None
    error: SnapshotError | None = None

    def __post_init__(self) -> None:
        if not self.volume_snapshot_info_list:
            force_setattr(self, "volume_snapshot_info_list", ())


class VolumeGroupSnapshotContent(KubeObject, frozen=True, kw_only=True):
    """Cluster-scoped. `status` is None until somebody has written it."""

    spec: VolumeGroupSnapshotContentSpec = VolumeGroupSnapshotContentSpec()
    status: VolumeGroupSnapshotContentStatus | None = None


class VolumeGroupSnapshotClass(VolumeSnapshotClass, frozen=True, kw_only=True):
    """Cluster-scoped."""
