"""Nodes and PersistentVolumes as the controller keeps them: all of them, so as little as possible.

Twenty thousand PersistentVolumes are held, twice (each replica keeps its cache warm). What no
decision of ours reads is dropped as soon as an object is decoded; equal parts of many objects are
kept once. Objects from here are never written back whole, only patched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import force_setattr

from localvolume.controller.plan.capacity import SHUT
from localvolume.kube.kinds import Kind
from localvolume.kube.objects import (
    NO_STRINGS,
    CSISource,
    FlexVolumeSource,
    HostPathSource,
    LocalSource,
    Meta,
    Node,
    NodeSpec,
    PersistentVolume,
    PVSpec,
    PVStatus,
)
from localvolume.volumes import marks

_LABELS: Final = frozenset({marks.NODE_LABEL, marks.ELASTIC_NODE_LABEL})
_ANNOTATIONS: Final = frozenset(
    {
        marks.PROVISIONED_BY_ANNOTATION,
        marks.CLAIMED_ANNOTATION,
        marks.BOUND_BY_CONTROLLER_ANNOTATION,
        marks.ALPHA_AFFINITY_ANNOTATION,
        marks.LOST_ANNOTATION,
        marks.KUTTI_NODE_ANNOTATION,
        marks.LOCAL_PATH_NODE_ANNOTATION,
    }
)
_POOL: Final = (marks.POOL_ANNOTATION, "")
_LOCAL: Final = LocalSource()
_HOST_PATH: Final = HostPathSource()
_CSI: Final = CSISource(driver=marks.CSI_DRIVER)
_FLEX: Final = {driver: FlexVolumeSource(driver=driver) for driver in marks.FLEX_DRIVERS}

# A node's volumes have equal annotations until they are claimed. Clearing this costs only memory.
_SHARED_LIMIT: Final = 8192
_shared: Final[dict[tuple[tuple[str, str], ...], Mapping[str, str]]] = {}


def few(all_of: Mapping[str, str], wanted: frozenset[str]) -> Mapping[str, str]:
    """Keep only the wanted keys; equal maps become the same object."""
    return _shared_map(tuple((key, value) for key, value in all_of.items() if key in wanted))


def _shared_map(kept: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    if not kept:
        return NO_STRINGS
    if len(_shared) >= _SHARED_LIMIT:
        _shared.clear()
    return _shared.setdefault(kept, dict(kept))


def put(struct: Any, **fields: Any) -> None:
    for name, value in fields.items():
        force_setattr(struct, name, value)


class VolumeMeta(Meta, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        notes = self.annotations or NO_STRINGS
        kept = [(key, value) for key, value in notes.items() if key in _ANNOTATIONS]
        if marks.POOL_ANNOTATION in notes:
            kept.append(_POOL)  # whether it has one decides; only its agent needs to know which
        put(
            self,
            labels=few(self.labels or NO_STRINGS, _LABELS),
            annotations=_shared_map(tuple(kept)),
            owner_references=(),
            creation_timestamp=None,
        )
        super().__post_init__()


class VolumeSpec(PVSpec, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        # Decisions depend on the kind alone; only its agent needs to know where it is.
        local = None if self.local is None else _LOCAL
        host_path = None if self.host_path is None else _HOST_PATH
        flex = None if self.flex_volume is None else _FLEX.get(self.flex_volume.driver)
        csi = self.csi if self.csi is not None and self.csi.driver == marks.CSI_DRIVER else None
        put(self, local=local, host_path=host_path, flex_volume=flex, csi=csi)
        put(self, capacity=NO_STRINGS, access_modes=(), mount_options=())
        super().__post_init__()


class VolumeStatus(PVStatus, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        put(self, reason=None, message=None)
        super().__post_init__()


_NO_VOLUME_META: Final = VolumeMeta()
_NO_VOLUME_SPEC: Final = VolumeSpec()
_NO_VOLUME_STATUS: Final = VolumeStatus()


class KnownVolume(PersistentVolume, frozen=True, kw_only=True):
    """A PersistentVolume with only what the controller's decisions read."""

    metadata: VolumeMeta = _NO_VOLUME_META
    spec: VolumeSpec = _NO_VOLUME_SPEC
    status: VolumeStatus = _NO_VOLUME_STATUS

    def __post_init__(self) -> None:
        csi = self.spec.csi
        if csi is not None and csi.volume_handle == self.metadata.name:
            put(self.spec, csi=_CSI)  # as nearly all are: no handle means the name


class PlainMeta(Meta, frozen=True, kw_only=True):
    """Metadata of objects of which only identity and labels matter."""

    def __post_init__(self) -> None:
        put(self, annotations=NO_STRINGS, finalizers=(), owner_references=())
        put(self, creation_timestamp=None)
        super().__post_init__()


class KnownNodeSpec(NodeSpec, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        shut = tuple(taint for taint in self.taints or () if taint.key in SHUT)
        put(self, taints=shut, unschedulable=self.unschedulable or None)
        super().__post_init__()


_NO_NODE_META: Final = PlainMeta()
_NO_NODE_SPEC: Final = KnownNodeSpec()


class KnownNode(Node, frozen=True, kw_only=True):
    """A Node's name, UID and labels, and whether it takes pods now."""

    metadata: PlainMeta = _NO_NODE_META
    spec: KnownNodeSpec = _NO_NODE_SPEC


VOLUMES: Final = Kind("", "v1", "persistentvolumes", "PersistentVolume", False, KnownVolume)
NODES: Final = Kind("", "v1", "nodes", "Node", False, KnownNode)
