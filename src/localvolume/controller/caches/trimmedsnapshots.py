"""VolumeSnapshots and their contents as the controller keeps them; see trimmed.py."""

from __future__ import annotations

from typing import Final

from localvolume.controller.caches.trimmed import PlainMeta, few, put
from localvolume.controller.plan.copies import MANAGED_BY_LABEL
from localvolume.kube.kinds import Kind
from localvolume.kube.objects import NO_STRINGS, Meta
from localvolume.kube.snapshotobjects import (
    VolumeSnapshot,
    VolumeSnapshotContent,
    VolumeSnapshotContentSpec,
)
from localvolume.volumes import marks

_CONTENT_LABELS: Final = frozenset({MANAGED_BY_LABEL})
_CONTENT_ANNOTATIONS: Final = frozenset({marks.NODE_LABEL})


class SnapshotMeta(PlainMeta, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        put(self, labels=NO_STRINGS)
        super().__post_init__()


class ContentMeta(Meta, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        put(
            self,
            labels=few(self.labels or NO_STRINGS, _CONTENT_LABELS),
            annotations=few(self.annotations or NO_STRINGS, _CONTENT_ANNOTATIONS),
            finalizers=(),
            owner_references=(),
            creation_timestamp=None,
        )
        super().__post_init__()


class ContentSpec(VolumeSnapshotContentSpec, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        put(self, deletion_policy="", volume_snapshot_class_name=None)


_NO_SNAPSHOT_META: Final = SnapshotMeta()
_NO_CONTENT_META: Final = ContentMeta()
_NO_CONTENT_SPEC: Final = ContentSpec()


class KnownSnapshot(VolumeSnapshot, frozen=True, kw_only=True):
    metadata: SnapshotMeta = _NO_SNAPSHOT_META


class KnownContent(VolumeSnapshotContent, frozen=True, kw_only=True):
    metadata: ContentMeta = _NO_CONTENT_META
    spec: ContentSpec = _NO_CONTENT_SPEC

    def __post_init__(self) -> None:
        put(self, status=None)


_GROUP: Final = "snapshot.storage.k8s.io"
SNAPSHOTS: Final = Kind(_GROUP, "v1", "volumesnapshots", "VolumeSnapshot", True, KnownSnapshot)
CONTENTS: Final = Kind(
    _GROUP, "v1", "volumesnapshotcontents", "VolumeSnapshotContent", False, KnownContent
)
