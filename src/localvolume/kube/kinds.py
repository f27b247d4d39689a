"""The kinds we use: where the API server serves each, and what we read of its objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import quote

from localvolume.kube.objects import (
    ConfigMap,
    CSIDriver,
    CSIStorageCapacity,
    EventObject,
    KubeObject,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttributesClass,
)
from localvolume.kube.podmounts import PodMounts
from localvolume.kube.snapshotobjects import (
    VolumeGroupSnapshotClass,
    VolumeGroupSnapshotContent,
    VolumeSnapshot,
    VolumeSnapshotClass,
    VolumeSnapshotContent,
)
from localvolume.kube.workloads import Job, Lease, Pod

T = TypeVar("T", bound=KubeObject)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """One kind of object. `group` is empty for the core group; `struct` is what answers become."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    struct: type[T]

    @property
    def api_version(self) -> str:
        """As in an object's apiVersion: "v1" or "storage.k8s.io/v1"."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The path on the server, already quoted: the collection's if no name is given.

        A namespaced kind without a namespace gives the collection over all namespaces.
        Raises ValueError if a named object of a namespaced kind lacks a namespace, if a
        cluster-scoped kind is given one, and if the name is no valid path segment.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.kind} has no namespace, but {namespace!r} was given")
        if name is not None and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        if name in ("", ".", ".."):
            # The path would be the collection's: a DELETE would delete every object in it.
            raise ValueError(f"a {self.kind} cannot be named {name!r}")
        parts = ["/apis", self.group] if self.group else ["/api"]
        parts.append(self.version)
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=":"))
        if subresource:
            parts.append(quote(subresource, safe=""))
        return "/".join(parts)


PERSISTENT_VOLUMES = Kind(
    "", "v1", "persistentvolumes", "PersistentVolume", False, PersistentVolume
)
CLAIMS = Kind(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", True, PersistentVolumeClaim
)
STORAGE_CLASSES = Kind(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", False, StorageClass
)
ATTRIBUTES_CLASSES = Kind(
    "storage.k8s.io",
    "v1",
    "volumeattributesclasses",
    "VolumeAttributesClass",
    False,
    VolumeAttributesClass,
)
CSI_DRIVERS = Kind("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False, CSIDriver)
STORAGE_CAPACITIES = Kind(
    "storage.k8s.io",
    "v1",
    "csistoragecapacities",
    "CSIStorageCapacity",
    True,
    CSIStorageCapacity,
)
NODES = Kind("", "v1", "nodes", "Node", False, Node)
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", False, Namespace)
PODS = Kind("", "v1", "pods", "Pod", True, Pod)
POD_MOUNTS = Kind("", "v1", "pods", "Pod", True, PodMounts)
JOBS = Kind("batch", "v1", "jobs", "Job", True, Job)
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", True, Lease)
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap", True, ConfigMap)
EVENTS = Kind("", "v1", "events", "Event", True, EventObject)

# The cluster may not have these: they come with its snapshot-controller.
_SNAPSHOTS = "snapshot.storage.k8s.io"
SNAPSHOT_CONTENTS = Kind(
    _SNAPSHOTS,
    "v1",
    "volumesnapshotcontents",
    "VolumeSnapshotContent",
    False,
    VolumeSnapshotContent,
)
SNAPSHOT_CLASSES = Kind(
    _SNAPSHOTS, "v1", "volumesnapshotclasses", "VolumeSnapshotClass", False, VolumeSnapshotClass
)
SNAPSHOTS = Kind(_SNAPSHOTS, "v1", "volumesnapshots", "VolumeSnapshot", True, VolumeSnapshot)
_GROUPS = "groupsnapshot.storage.k8s.io"
GROUP_CONTENTS = Kind(
    _GROUPS,
    "v1",
    "volumegroupsnapshotcontents",
    "VolumeGroupSnapshotContent",
    False,
    VolumeGroupSnapshotContent,
)
GROUP_CLASSES = Kind(
    _GROUPS,
    "v1",
    "volumegroupsnapshotclasses",
    "VolumeGroupSnapshotClass",
    False,
    VolumeGroupSnapshotClass,
)
