"""Claims, classes and capacities as the controller keeps them; see trimmed.py.

A bound claim keeps only its volume, its label and its name: nothing else of it is ever read.
"""

from __future__ import annotations

from typing import Final

from localvolume.controller.caches.trimmed import PlainMeta, few, put
from localvolume.kube.kinds import Kind
from localvolume.kube.objects import (
    NO_REQUESTS,
    NO_STRINGS,
    CSIStorageCapacity,
    Meta,
    PersistentVolumeClaim,
    PVCSpec,
    PVCStatus,
    StorageClass,
)
from localvolume.volumes import claims, marks

_CLAIM_LABELS: Final = frozenset({marks.NODE_LABEL})
_CLAIM_ANNOTATIONS: Final = frozenset(
    {
        claims.PROVISIONER_ANNOTATION,
        claims.BETA_PROVISIONER_ANNOTATION,
        claims.BETA_CLASS_ANNOTATION,
        claims.SELECTED_NODE_ANNOTATION,
        marks.REFUSED_ANNOTATION,
        marks.REFUSED_WHY_ANNOTATION,
    }
)
_CAPACITY_LABELS: Final = frozenset({marks.NODE_LABEL, marks.DRIVER_LABEL})
_CAPACITY_ANNOTATIONS: Final = frozenset({marks.PROBLEM_ANNOTATION})


class ClaimMeta(Meta, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        put(
            self,
            labels=few(self.labels or NO_STRINGS, _CLAIM_LABELS),
            annotations=few(self.annotations or NO_STRINGS, _CLAIM_ANNOTATIONS),
            finalizers=(),
            owner_references=(),
            creation_timestamp=None,
        )
        super().__post_init__()


class ClaimSpec(PVCSpec, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        source = self.data_source
        # The one that says more; see volumes/claims.py.
        put(self, selector=None, data_source=None)
        put(self, data_source_ref=self.data_source_ref or source)
        put(self, access_modes=(), volume_mode=None)
        super().__post_init__()


_NO_CLAIM_META: Final = ClaimMeta()
_NO_CLAIM_SPEC: Final = ClaimSpec()
_NO_CLAIM_STATUS: Final = PVCStatus()


class KnownClaim(PersistentVolumeClaim, frozen=True, kw_only=True):
    metadata: ClaimMeta = _NO_CLAIM_META
    spec: ClaimSpec = _NO_CLAIM_SPEC

    def __post_init__(self) -> None:
        put(self, status=_NO_CLAIM_STATUS)
        if self.spec.volume_name:
            put(self.metadata, annotations=NO_STRINGS)
            put(self.spec, resources=NO_REQUESTS, storage_class_name=None, data_source_ref=None)


class ClassMeta(PlainMeta, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        put(self, labels=NO_STRINGS)
        super().__post_init__()


class CapacityMeta(PlainMeta, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        put(self, labels=few(self.labels or NO_STRINGS, _CAPACITY_LABELS))
        said = few(self.annotations or NO_STRINGS, _CAPACITY_ANNOTATIONS)
        super().__post_init__()
        put(self, annotations=said)


_NO_CLASS_META: Final = ClassMeta()
_NO_CAPACITY_META: Final = CapacityMeta()


class KnownClass(StorageClass, frozen=True, kw_only=True):
    metadata: ClassMeta = _NO_CLASS_META

    def __post_init__(self) -> None:
        if self.provisioner not in marks.FLEX_DRIVERS:
            put(self, parameters=NO_STRINGS, mount_options=())
        super().__post_init__()


class KnownCapacity(CSIStorageCapacity, frozen=True, kw_only=True):
    metadata: CapacityMeta = _NO_CAPACITY_META


CLAIMS: Final = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, KnownClaim)
CLASSES: Final = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, KnownClass)
CAPACITIES: Final = Kind(
    "storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", True, KnownCapacity
)
