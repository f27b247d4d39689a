"""The objects of the snapshot API (snapshot.storage.k8s.io/v1), trimmed to the fields we use."""

from __future__ import annotations

from msgspec.structs import force_setattr

from localvolume.kube.objects import NO_STRINGS, KubeObject, StringMap, Trimmed


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
