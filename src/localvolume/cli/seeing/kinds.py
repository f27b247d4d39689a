"""Objects with fields that only the commands for people read, so the agent does not decode them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import force_setattr

from localvolume.kube.kinds import Kind
from localvolume.kube.objects import (
    NO_STRINGS,
    EventObject,
    KubeObject,
    Node,
    StringMap,
    Trimmed,
)
from localvolume.kube.snapshotobjects import VolumeSnapshotContent, VolumeSnapshotContentStatus
from localvolume.kube.workloads import Condition, PodVolume

if TYPE_CHECKING:
    Conditions = tuple[Condition, ...]
else:
    Conditions = tuple[Condition, ...] | None


class Series(Trimmed, frozen=True, kw_only=True):
    """The series of an Event that was seen several times, as events.k8s.io counts."""

    count: int = 0
    last_observed_time: str | None = None


class SeenEvent(EventObject, frozen=True, kw_only=True):
    """An Event, also one of the scheduler, which has its time in other fields."""

    reporting_instance: str = ""
    event_time: str | None = None
    series: Series | None = None

    @property
    def seen(self) -> str:
        """When it was seen last (RFC 3339)."""
        last = self.series.last_observed_time if self.series else None
        return (
            last
            or self.last_timestamp
            or self.event_time
            or self.first_timestamp
            or self.metadata.creation_timestamp
            or ""
        )

    @property
    def times(self) -> int:
        return (self.series.count if self.series else 0) or self.count or 1


class NodeStatus(Trimmed, frozen=True, kw_only=True):
    conditions: Conditions = ()

    def __post_init__(self) -> None:
        if not self.conditions:
            force_setattr(self, "conditions", ())


class SeenNode(Node, frozen=True, kw_only=True):
    status: NodeStatus = NodeStatus()


class NodeDriver(Trimmed, frozen=True, kw_only=True):
    """A CSI driver that is registered with a node's kubelet."""

    name: str = ""


if TYPE_CHECKING:
    NodeDrivers = tuple[NodeDriver, ...]
else:
    NodeDrivers = tuple[NodeDriver, ...] | None


class CSINodeSpec(Trimmed, frozen=True, kw_only=True):
    drivers: NodeDrivers = ()

    def __post_init__(self) -> None:
        if not self.drivers:
            force_setattr(self, "drivers", ())


class CSINode(KubeObject, frozen=True, kw_only=True):
    """storage.k8s.io/v1; the kubelet of the node of its name writes it."""

    spec: CSINodeSpec = CSINodeSpec()


class DaemonSetStatus(Trimmed, frozen=True, kw_only=True):
    """How many pods there should be, and how many are ready."""

    desired_number_scheduled: int = 0
    number_ready: int = 0


class DaemonSet(KubeObject, frozen=True, kw_only=True):
    status: DaemonSetStatus = DaemonSetStatus()


class SeenContentStatus(VolumeSnapshotContentStatus, frozen=True, kw_only=True):
    """`creation_time` is in nanoseconds since the epoch, `restore_size` in bytes."""

    creation_time: int | None = None
    restore_size: int | None = None


class SeenContent(VolumeSnapshotContent, frozen=True, kw_only=True):
    status: SeenContentStatus | None = None


class SecretRef(Trimmed, frozen=True, kw_only=True):
    name: str = ""


class InlineSource(Trimmed, frozen=True, kw_only=True):
    """A volume that the pod's spec asks a CSI driver for."""

    driver: str = ""
    fs_type: str | None = None
    volume_attributes: StringMap = NO_STRINGS
    node_publish_secret_ref: SecretRef | None = None

    def __post_init__(self) -> None:
        if not self.volume_attributes:
            force_setattr(self, "volume_attributes", NO_STRINGS)


class SeenPodVolume(PodVolume, frozen=True, kw_only=True):
    csi: InlineSource | None = None


if TYPE_CHECKING:
    SeenPodVolumes = tuple[SeenPodVolume, ...]
else:
    SeenPodVolumes = tuple[SeenPodVolume, ...] | None


class SeenPodSpec(Trimmed, frozen=True, kw_only=True):
    node_name: str = ""
    volumes: SeenPodVolumes = ()

    def __post_init__(self) -> None:
        if not self.volumes:
            force_setattr(self, "volumes", ())


class SeenPodStatus(Trimmed, frozen=True, kw_only=True):
    phase: str = ""
    start_time: str | None = None


class SeenPod(KubeObject, frozen=True, kw_only=True):
    """A pod with the sources of its volumes."""

    spec: SeenPodSpec = SeenPodSpec()
    status: SeenPodStatus = SeenPodStatus()


CONTENTS = Kind(
    "snapshot.storage.k8s.io",
    "v1",
    "volumesnapshotcontents",
    "VolumeSnapshotContent",
    False,
    SeenContent,
)
EVENTS = Kind("", "v1", "events", "Event", True, SeenEvent)
CSI_NODES = Kind("storage.k8s.io", "v1", "csinodes", "CSINode", False, CSINode)
NODES = Kind("", "v1", "nodes", "Node", False, SeenNode)
PODS = Kind("", "v1", "pods", "Pod", True, SeenPod)
DAEMON_SETS = Kind("apps", "v1", "daemonsets", "DaemonSet", True, DaemonSet)
