"""The resources the sandbox serves: names, scopes and the habits of each on a real server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, eq=False)
class Resource:
    """One REST resource.

    `returns_deleted`: a final DELETE answers with the object instead of a Status.
    `unconditional`: a PUT without resourceVersion is allowed.
    `fields`: field selectors beyond metadata.name and metadata.namespace, each with the path of
    the value in the object; a missing value selects as the empty string.
    `field_refusal`: how the server words an unknown field selector ({} is the field).
    """

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    returns_deleted: bool = False
    unconditional: bool = True
    create_on_update: bool = False
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    field_refusal: str = (
        '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )
    verbs: tuple[str, ...] = ALL_VERBS

    @property
    def group_version(self) -> str:
        """`v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`plural` or `plural.group`, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_UNSUPPORTED = "field label not supported: {}"

_EVENT_FIELDS: dict[str, tuple[str, ...]] = {
    **{
        f"involvedObject.{key}": ("involvedObject", key)
        for key in (
            "kind",
            "namespace",
            "name",
            "uid",
            "apiVersion",
            "resourceVersion",
            "fieldPath",
        )
    },
    "reason": ("reason",),
    "reportingComponent": ("reportingComponent",),
    "source": ("source", "component"),
    "type": ("type",),
}

NAMESPACES = Resource(
    "", "v1", "namespaces", "namespace", "Namespace", False, ("ns",),
    status=True, returns_deleted=True, fields={"status.phase": ("status", "phase")},
    field_refusal=_UNSUPPORTED, verbs=tuple(v for v in ALL_VERBS if v != "deletecollection"),
)  # fmt: skip
NODES = Resource(
    "", "v1", "nodes", "node", "Node", False, ("no",), status=True,
    fields={"spec.unschedulable": ("spec", "unschedulable")}, field_refusal=_UNSUPPORTED,
)  # fmt: skip
PERSISTENT_VOLUMES = Resource(
    "", "v1", "persistentvolumes", "persistentvolume", "PersistentVolume", False, ("pv",),
    status=True, returns_deleted=True,
)  # fmt: skip
CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", True,
    ("pvc",), status=True, returns_deleted=True,
)  # fmt: skip
EVENTS = Resource(
    "", "v1", "events", "event", "Event", True, ("ev",), create_on_update=True,
    fields=_EVENT_FIELDS, field_refusal=_UNSUPPORTED,
)  # fmt: skip
PODS = Resource(
    "", "v1", "pods", "pod", "Pod", True, ("po",), ("all",), status=True, returns_deleted=True,
    fields={
        "spec.nodeName": ("spec", "nodeName"),
        "spec.restartPolicy": ("spec", "restartPolicy"),
        "spec.schedulerName": ("spec", "schedulerName"),
        "spec.serviceAccountName": ("spec", "serviceAccountName"),
        "status.phase": ("status", "phase"),
    },
    field_refusal=_UNSUPPORTED,
)  # fmt: skip
CONFIG_MAPS = Resource("", "v1", "configmaps", "configmap", "ConfigMap", True, ("cm",))
SERVICE_ACCOUNTS = Resource(
    "", "v1", "serviceaccounts", "serviceaccount", "ServiceAccount", True, ("sa",),
    returns_deleted=True,
)  # fmt: skip
STORAGE_CLASSES = Resource(
    "storage.k8s.io", "v1", "storageclasses", "storageclass", "StorageClass", False, ("sc",),
    returns_deleted=True,
)  # fmt: skip
CSI_DRIVERS = Resource(
    "storage.k8s.io", "v1", "csidrivers", "csidriver", "CSIDriver", False, returns_deleted=True,
    unconditional=False,
)  # fmt: skip
STORAGE_CAPACITIES = Resource(
    "storage.k8s.io", "v1", "csistoragecapacities", "csistoragecapacity", "CSIStorageCapacity",
    True, unconditional=False,
)  # fmt: skip
JOBS = Resource(
    "batch", "v1", "jobs", "job", "Job", True, (), ("all",), status=True, returns_deleted=True,
    fields={"status.successful": ("status", "succeeded")},
    field_refusal='field label "{}" not supported for Job',
)  # fmt: skip
LEASES = Resource(
    "coordination.k8s.io", "v1", "leases", "lease", "Lease", True, unconditional=False,
    create_on_update=True,
)  # fmt: skip
_READ_VERBS = ("get", "list", "watch")
#: For those who look at a whole cluster. No client makes any, so they are read-only.
CSI_NODES = Resource(
    "storage.k8s.io", "v1", "csinodes", "csinode", "CSINode", False, verbs=_READ_VERBS,
)  # fmt: skip
DAEMON_SETS = Resource(
    "apps", "v1", "daemonsets", "daemonset", "DaemonSet", True, ("ds",), ("all",),
    verbs=_READ_VERBS,
)  # fmt: skip
REPLICA_SETS = Resource(
    "apps", "v1", "replicasets", "replicaset", "ReplicaSet", True, ("rs",), ("all",),
    verbs=_READ_VERBS,
)  # fmt: skip
_SNAPSHOTS = "snapshot.storage.k8s.io"
#: A real server learns these three from CustomResourceDefinitions.
SNAPSHOT_CLASSES = Resource(
    _SNAPSHOTS, "v1", "volumesnapshotclasses", "volumesnapshotclass", "VolumeSnapshotClass", False,
    ("vsclass", "vsclasses"), unconditional=False,
)  # fmt: skip
SNAPSHOT_CONTENTS = Resource(
    _SNAPSHOTS, "v1", "volumesnapshotcontents", "volumesnapshotcontent", "VolumeSnapshotContent",
    False, ("vsc", "vscs"), status=True, unconditional=False,
)  # fmt: skip
SNAPSHOTS = Resource(
    _SNAPSHOTS, "v1", "volumesnapshots", "volumesnapshot", "VolumeSnapshot", True, ("vs",),
    status=True, unconditional=False,
)  # fmt: skip
#: The newer names of the same stored events; see events_view.py.
NEW_EVENTS = Resource(
    "events.k8s.io", "v1", "events", "event", "Event", True, ("ev",), create_on_update=True,
    fields={
        name.replace("involvedObject.", "regarding."): path for name, path in _EVENT_FIELDS.items()
    },
    field_refusal=_UNSUPPORTED,
)  # fmt: skip

STORED = (
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUMES,
    CLAIMS,
    EVENTS,
    PODS,
    CONFIG_MAPS,
    SERVICE_ACCOUNTS,
    STORAGE_CLASSES,
    CSI_DRIVERS,
    STORAGE_CAPACITIES,
    JOBS,
    LEASES,
    CSI_NODES,
    DAEMON_SETS,
    REPLICA_SETS,
    SNAPSHOT_CLASSES,
    SNAPSHOT_CONTENTS,
    SNAPSHOTS,
)
SERVED = (*STORED, NEW_EVENTS)


def find(group: str, version: str, plural: str) -> Resource | None:
    """The resource of a URL, or None."""
    return _BY_PATH.get((group, version, plural))


def groups() -> dict[str, str]:
    """Named API groups and their version, in the order served."""
    return {resource.group: resource.version for resource in SERVED if resource.group}


def stored_as(resource: Resource) -> Resource:
    """The resource whose objects this one shows; itself, but for the newer events."""
    return EVENTS if resource is NEW_EVENTS else resource


_BY_PATH = {(r.group, r.version, r.plural): r for r in SERVED}
