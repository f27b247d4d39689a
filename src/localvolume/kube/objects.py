"""The Kubernetes objects, trimmed to the fields we use.

Decoding skips every other field, which keeps a cached PersistentVolume at 1 to 3 kB
(managedFields alone are often more). Because of that, an object from here must never be written
back whole: fields would be lost. Change objects with patches.

Lists and maps may be missing, null or empty in what servers send; here they are always present, and
all empty ones are the same object. Quantities ("10Gi") stay strings. Times are RFC 3339 strings.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import force_setattr

if TYPE_CHECKING:
    Strings = tuple[str, ...]
    StringMap = Mapping[str, str]
else:
    # What may come over the wire; __post_init__ turns null into an empty one.
    Strings = tuple[str, ...] | None
    StringMap = Mapping[str, str] | None

NO_STRINGS: StringMap = MappingProxyType({})


class Trimmed(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False, omit_defaults=True
):
    """The base of all structs. gc=False: no cycles are possible, so the collector may skip them."""


# The volumes of a node mostly have the same labels, capacity, modes and node affinity. Sharing
# them halves the memory of a cached volume. Clearing this now and then costs only memory.
_SHARED_LIMIT: Final = 4096
_shared: Final[dict[Any, Any]] = {}


def _share(struct: Trimmed, field: str, value: Any, key: Any = None) -> None:
    """Replace a field's value by an equal one seen before. `key` stands for an unhashable value."""
    key = value if key is None else key
    known = _shared.get(key)
    if known is None:
        if len(_shared) >= _SHARED_LIMIT:
            _shared.clear()
        _shared[key] = value
    else:
        force_setattr(struct, field, known)


def _share_map(struct: Trimmed, field: str, value: StringMap) -> None:
    # A tuple of pairs never equals another kind of value here: a string, a struct, a tuple of them.
    _share(struct, field, value, tuple(value.items()))


def _empty(struct: Trimmed, field: str, value: object) -> None:
    force_setattr(struct, field, value)


class OwnerReference(Trimmed, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


if TYPE_CHECKING:
    OwnerReferences = tuple[OwnerReference, ...]
else:
    OwnerReferences = tuple[OwnerReference, ...] | None


class Meta(Trimmed, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: StringMap = NO_STRINGS
    annotations: StringMap = NO_STRINGS
    finalizers: Strings = ()
    owner_references: OwnerReferences = ()
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None

    def __post_init__(self) -> None:
        if self.labels:
            _share_map(self, "labels", self.labels)
        else:
            _empty(self, "labels", NO_STRINGS)
        if not self.annotations:
            _empty(self, "annotations", NO_STRINGS)
        if self.finalizers:
            _share(self, "finalizers", self.finalizers)
        else:
            _empty(self, "finalizers", ())
        if self.owner_references:
            _share(self, "owner_references", self.owner_references)
        else:
            _empty(self, "owner_references", ())


NO_META = Meta()


class KubeObject(Trimmed, frozen=True, kw_only=True):
    """What every object has."""

    metadata: Meta = NO_META


# --- node selectors, as in a PersistentVolume's nodeAffinity and a StorageClass's topologies


class NodeSelectorRequirement(Trimmed, frozen=True, kw_only=True):
    """`operator`: In, NotIn, Exists, DoesNotExist, Gt, Lt; no `values` for the middle two."""

    key: str = ""
    operator: str = ""
    values: Strings = ()

    def __post_init__(self) -> None:
        if not self.values:
            _empty(self, "values", ())


if TYPE_CHECKING:
    Requirements = tuple[NodeSelectorRequirement, ...]
else:
    Requirements = tuple[NodeSelectorRequirement, ...] | None


class NodeSelectorTerm(Trimmed, frozen=True, kw_only=True):
    """All requirements must hold. A term without any matches no node."""

    match_expressions: Requirements = ()
    match_fields: Requirements = ()

    def __post_init__(self) -> None:
        if not self.match_expressions:
            _empty(self, "match_expressions", ())
        if not self.match_fields:
            _empty(self, "match_fields", ())


if TYPE_CHECKING:
    Terms = tuple[NodeSelectorTerm, ...]
else:
    Terms = tuple[NodeSelectorTerm, ...] | None


class NodeSelector(Trimmed, frozen=True, kw_only=True):
    """One of the terms must hold. A selector without any matches no node."""

    node_selector_terms: Terms = ()

    def __post_init__(self) -> None:
        if not self.node_selector_terms:
            _empty(self, "node_selector_terms", ())


class VolumeNodeAffinity(Trimmed, frozen=True, kw_only=True):
    required: NodeSelector | None = None


# --- volumes and claims


class LocalSource(Trimmed, frozen=True, kw_only=True):
    path: str = ""
    fs_type: str | None = None


class HostPathSource(Trimmed, frozen=True, kw_only=True):
    path: str = ""
    type: str | None = None


class FlexVolumeSource(Trimmed, frozen=True, kw_only=True):
    """`driver` is `<vendor>/<driver>`; `options` are passed to it unchanged."""

    driver: str = ""
    fs_type: str | None = None
    read_only: bool | None = None
    options: StringMap = NO_STRINGS

    def __post_init__(self) -> None:
        if not self.options:
            _empty(self, "options", NO_STRINGS)


class CSISource(Trimmed, frozen=True, kw_only=True):
    """`volume_handle` is the driver's name for the volume."""

    driver: str = ""
    volume_handle: str = ""
    fs_type: str | None = None


class ClaimRef(Trimmed, frozen=True, kw_only=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class PVSpec(Trimmed, frozen=True, kw_only=True):
    capacity: StringMap = NO_STRINGS
    access_modes: Strings = ()
    persistent_volume_reclaim_policy: str | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    mount_options: Strings = ()
    local: LocalSource | None = None
    host_path: HostPathSource | None = None
    flex_volume: FlexVolumeSource | None = None
    csi: CSISource | None = None
    claim_ref: ClaimRef | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None

    def __post_init__(self) -> None:
        if self.capacity:
            _share_map(self, "capacity", self.capacity)
        else:
            _empty(self, "capacity", NO_STRINGS)
        if self.access_modes:
            _share(self, "access_modes", self.access_modes)
        else:
            _empty(self, "access_modes", ())
        if self.mount_options:
            _share(self, "mount_options", self.mount_options)
        else:
            _empty(self, "mount_options", ())
        if self.node_affinity is not None:
            _share(self, "node_affinity", self.node_affinity)
        if self.storage_class_name:
            _share(self, "storage_class_name", self.storage_class_name)
        if self.persistent_volume_reclaim_policy:
            _share(self, "persistent_volume_reclaim_policy", self.persistent_volume_reclaim_policy)
        if self.volume_mode:
            _share(self, "volume_mode", self.volume_mode)


class PVStatus(Trimmed, frozen=True, kw_only=True):
    """`phase`: Pending, Available, Bound, Released, Failed; empty until a controller sees it."""

    phase: str = ""
    reason: str | None = None
    message: str | None = None

    def __post_init__(self) -> None:
        if self.phase:
            _share(self, "phase", self.phase)


class PersistentVolume(KubeObject, frozen=True, kw_only=True):
    spec: PVSpec = PVSpec()
    status: PVStatus = PVStatus()


class DataSource(Trimmed, frozen=True, kw_only=True):
    """What a claim is to be filled from: its `dataSource` or `dataSourceRef`."""

    api_group: str | None = None
    kind: str = ""
    name: str = ""
    namespace: str | None = None


class LabelSelector(Trimmed, frozen=True, kw_only=True):
    match_labels: StringMap = NO_STRINGS
    match_expressions: Requirements = ()

    def __post_init__(self) -> None:
        if not self.match_labels:
            _empty(self, "match_labels", NO_STRINGS)
        if not self.match_expressions:
            _empty(self, "match_expressions", ())


class Requests(Trimmed, frozen=True, kw_only=True):
    """A claim's `resources`: `requests` has the quantity `storage`."""

    requests: StringMap = NO_STRINGS

    def __post_init__(self) -> None:
        if self.requests:
            _share_map(self, "requests", self.requests)
        else:
            _empty(self, "requests", NO_STRINGS)


NO_REQUESTS = Requests()


class PVCSpec(Trimmed, frozen=True, kw_only=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    access_modes: Strings = ()
    resources: Requests = NO_REQUESTS
    selector: LabelSelector | None = None
    data_source: DataSource | None = None
    data_source_ref: DataSource | None = None
    volume_attributes_class_name: str | None = None

    def __post_init__(self) -> None:
        if self.access_modes:
            _share(self, "access_modes", self.access_modes)
        else:
            _empty(self, "access_modes", ())
        if self.storage_class_name:
            _share(self, "storage_class_name", self.storage_class_name)


class Condition(Trimmed, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None
    reason: str | None = None
    message: str | None = None


if TYPE_CHECKING:
    Conditions = tuple[Condition, ...]
else:
    Conditions = tuple[Condition, ...] | None


class ModifyVolumeStatus(Trimmed, frozen=True, kw_only=True):
    """`status` is Pending, InProgress or Infeasible."""

    target_volume_attributes_class_name: str = ""
    status: str = ""


class PVCStatus(Trimmed, frozen=True, kw_only=True):
    """`phase` is Pending, Bound or Lost; `capacity` is the volume's, once it is bound.
    `allocated_resources` is the size to which it was last told to grow,
    `allocated_resource_statuses` the state of that while it is under way. `modify_volume_status`
    is of a change to another VolumeAttributesClass, while that is under way or cannot be."""

    phase: str = ""
    capacity: StringMap = NO_STRINGS
    allocated_resources: StringMap = NO_STRINGS
    allocated_resource_statuses: StringMap = NO_STRINGS
    conditions: Conditions = ()
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: ModifyVolumeStatus | None = None

    def __post_init__(self) -> None:
        if self.capacity:
            _share_map(self, "capacity", self.capacity)
        else:
            _empty(self, "capacity", NO_STRINGS)
        if not self.allocated_resources:
            _empty(self, "allocated_resources", NO_STRINGS)
        if not self.allocated_resource_statuses:
            _empty(self, "allocated_resource_statuses", NO_STRINGS)
        if not self.conditions:
            _empty(self, "conditions", ())


class PersistentVolumeClaim(KubeObject, frozen=True, kw_only=True):
    spec: PVCSpec = PVCSpec()
    status: PVCStatus = PVCStatus()


class TopologyRequirement(Trimmed, frozen=True, kw_only=True):
    """One of a class's allowedTopologies: the node's label `key` must have one of `values`."""

    key: str = ""
    values: Strings = ()

    def __post_init__(self) -> None:
        if not self.values:
            _empty(self, "values", ())


if TYPE_CHECKING:
    TopologyRequirements = tuple[TopologyRequirement, ...]
else:
    TopologyRequirements = tuple[TopologyRequirement, ...] | None


class TopologyTerm(Trimmed, frozen=True, kw_only=True):
    """All requirements must hold."""

    match_label_expressions: TopologyRequirements = ()

    def __post_init__(self) -> None:
        if not self.match_label_expressions:
            _empty(self, "match_label_expressions", ())


if TYPE_CHECKING:
    Topologies = tuple[TopologyTerm, ...]
else:
    Topologies = tuple[TopologyTerm, ...] | None


class StorageClass(KubeObject, frozen=True, kw_only=True):
    """`allowed_topologies`: one of the terms must hold; no terms means everywhere."""

    provisioner: str = ""
    parameters: StringMap = NO_STRINGS
    reclaim_policy: str | None = None
    mount_options: Strings = ()
    volume_binding_mode: str | None = None
    allow_volume_expansion: bool | None = None
    allowed_topologies: Topologies = ()

    def __post_init__(self) -> None:
        if not self.parameters:
            _empty(self, "parameters", NO_STRINGS)
        if not self.mount_options:
            _empty(self, "mount_options", ())
        if not self.allowed_topologies:
            _empty(self, "allowed_topologies", ())


class VolumeAttributesClass(KubeObject, frozen=True, kw_only=True):
    """storage.k8s.io/v1. Both fields are immutable."""

    driver_name: str = ""
    parameters: StringMap = NO_STRINGS

    def __post_init__(self) -> None:
        if not self.parameters:
            _empty(self, "parameters", NO_STRINGS)


class CSIDriver(KubeObject, frozen=True, kw_only=True):
    """storage.k8s.io/v1; only its existence is read."""


class CSIStorageCapacity(KubeObject, frozen=True, kw_only=True):
    """storage.k8s.io/v1: how much capacity a class has where `node_topology` matches.

    Its class and topology are immutable. Quantities are strings, as elsewhere.
    """

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | None = None
    maximum_volume_size: str | None = None


# --- nodes and other objects that we read


class Taint(Trimmed, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""


if TYPE_CHECKING:
    Taints = tuple[Taint, ...]
else:
    Taints = tuple[Taint, ...] | None


class NodeSpec(Trimmed, frozen=True, kw_only=True):
    taints: Taints = ()
    unschedulable: bool | None = None

    def __post_init__(self) -> None:
        if not self.taints:
            _empty(self, "taints", ())


class Node(KubeObject, frozen=True, kw_only=True):
    spec: NodeSpec = NodeSpec()


class Namespace(KubeObject, frozen=True, kw_only=True):
    pass


class ConfigMap(KubeObject, frozen=True, kw_only=True):
    data: StringMap = NO_STRINGS

    def __post_init__(self) -> None:
        if not self.data:
            _empty(self, "data", NO_STRINGS)


class InvolvedObject(Trimmed, frozen=True, kw_only=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""


class EventSource(Trimmed, frozen=True, kw_only=True):
    component: str = ""
    host: str = ""


class EventObject(KubeObject, frozen=True, kw_only=True):
    """A core/v1 Event; `type` is Normal or Warning."""

    involved_object: InvolvedObject = InvolvedObject()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    source: EventSource = EventSource()
    reporting_component: str = ""


def as_builtins(struct: Trimmed) -> dict[str, Any]:
    """A dict with Kubernetes' own field names and without empty fields, to print and to test."""
    built: dict[str, Any] = msgspec.to_builtins(struct)
    return built
