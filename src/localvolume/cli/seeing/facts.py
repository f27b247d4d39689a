"""What was read from the cluster, and what could not be and why: plain frozen data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from localvolume.cli.seeing.kinds import DaemonSet, SeenContent, SeenEvent, SeenNode
from localvolume.controller.plan.nodes import Nodes
from localvolume.controller.plan.ours import provisioner_of
from localvolume.kube.objects import (
    CSIStorageCapacity,
    KubeObject,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttributesClass,
)
from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent
from localvolume.kube.workloads import Job, Lease, Pod
from localvolume.volumes import affinity, claims, marks
from localvolume.volumes.objects import is_csi, is_dynamic, is_on_node, recorded_identity

NO_PROVISIONER = "kubernetes.io/no-provisioner"
"""The provisioner of classes with prepared volumes."""


_AGENT = "local-volume-provisioner"
_CONTROLLER = "localvolume-controller"


@dataclass(frozen=True)
class Facts:
    """`None` is what could not be read; `unknown` says why, by the plural of its kind.

    `claims` are by `namespace/name`, the other mappings by name. `pods` and `daemon_sets` are those
    with our label, `jobs` and `capacities` those of our nodes. `contents` are those of our CSI
    driver. `events` are about PersistentVolumes, claims, Nodes and contents, in any order. `now` is
    in seconds since the epoch.
    """

    now: float
    nodes: Mapping[str, SeenNode] | None = None
    volumes: Mapping[str, PersistentVolume] | None = None
    alone: Mapping[str, PersistentVolume] = field(default_factory=dict)
    """The volume of the claim in question, read by itself where they could not be listed."""
    claims: Mapping[str, PersistentVolumeClaim] | None = None
    classes: Mapping[str, StorageClass] | None = None
    capacities: Sequence[CSIStorageCapacity] | None = None
    pods: Sequence[Pod] | None = None
    daemon_sets: Sequence[DaemonSet] | None = None
    jobs: Sequence[Job] | None = None
    leases: Sequence[Lease] | None = None
    events: Sequence[SeenEvent] | None = None
    drivers: frozenset[str] | None = None
    """Which of our provisioners have their CSIDriver, which makes the scheduler check capacity."""
    registered: frozenset[str] | None = None
    """The nodes with whose kubelet our CSI driver is registered; None also if nothing uses it."""
    contents: Mapping[str, SeenContent] | None = field(default_factory=dict)
    """VolumeSnapshotContents; empty also if nothing uses our CSI driver, or without the kind."""
    groups: Mapping[str, VolumeGroupSnapshotContent] | None = field(default_factory=dict)
    """VolumeGroupSnapshotContents, as `contents`."""
    attributes: Mapping[str, VolumeAttributesClass] | None = field(default_factory=dict)
    """VolumeAttributesClasses; empty also if no volume has one, or without the kind."""
    consumers: Sequence[Pod] | None = None
    """Pods of a claim's namespace, if one claim is asked about."""
    selector: str = ""
    """The label by which the pods were looked for."""
    namespace: str = ""
    """The namespace in which they were looked for; "" for all."""
    unknown: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def known_nodes(self) -> Nodes:
        return Nodes((self.nodes or {}).values())

    @cached_property
    def provisioners(self) -> frozenset[str]:
        """The provisioners that we make volumes for: our own, and those that our objects name."""
        found = {*marks.OURS, *marks.FLEX_DRIVERS}
        for volume in (self.volumes or {}).values():
            if marks.NODE_LABEL in volume.metadata.labels and is_dynamic(volume):
                found.add(provisioner_of(volume))
        published = {
            thing.metadata.labels.get(marks.DRIVER_LABEL) for thing in self.capacities or ()
        }
        for class_ in (self.classes or {}).values():
            if class_.provisioner and marks.driver_label(class_.provisioner) in published:
                found.add(class_.provisioner)
        return frozenset(found - {""})

    def is_ours(self, volume: PersistentVolume) -> bool:
        """Whether one of our agents serves it, or would once it is adopted."""
        meta = volume.metadata
        provisioner, source = provisioner_of(volume), volume.spec.flex_volume
        return (
            marks.NODE_LABEL in meta.labels
            or marks.POOL_ANNOTATION in meta.annotations
            or marks.is_of_static_provisioner(provisioner)
            or provisioner in self.provisioners
            or (source is not None and source.driver in marks.FLEX_DRIVERS)
            or is_csi(volume)
        )

    @cached_property
    def ours(self) -> Sequence[PersistentVolume]:
        return [one for one in (self.volumes or {}).values() if self.is_ours(one)]

    def is_our_class(self, name: str) -> bool:
        """Whether we serve claims of the class, by volumes made for them or prepared before."""
        class_ = (self.classes or {}).get(name)
        if class_ is None:
            return any(volume.spec.storage_class_name == name for volume in self.ours)
        return class_.provisioner == NO_PROVISIONER or class_.provisioner in self.provisioners

    def node_of(self, volume: PersistentVolume) -> str:
        """The name of the node that it is on, as far as the object says, or ""."""
        key = volume.metadata.labels.get(marks.NODE_LABEL, "")
        node = self.known_nodes.by_key(key) if key else None
        if node is not None:
            return node.metadata.name
        hostnames = affinity.hostnames(affinity.required_terms(volume))
        named = self.known_nodes.named(hostnames)
        if len(named) == 1:
            return named[0].metadata.name
        return key or (next(iter(hostnames)) if len(hostnames) == 1 else "")

    def node_of_claim(self, claim: PersistentVolumeClaim) -> str:
        """The node that was selected for the claim, or that it was routed to, or ""."""
        if name := claims.selected_node(claim):
            return name
        key = claim.metadata.labels.get(marks.NODE_LABEL, "")
        node = self.known_nodes.by_key(key) if key else None
        return node.metadata.name if node else key

    def is_lost(self, volume: PersistentVolume) -> bool:
        """Whether no node exists that could serve it; False if nodes could not be read."""
        if marks.LOST_ANNOTATION in volume.metadata.annotations:
            return True
        if self.nodes is None or not affinity.required_terms(volume):
            return False
        known = self.known_nodes
        found = known.serving_dynamic(volume) if is_dynamic(volume) else known.serving(volume)
        return not found

    def is_of(self, volume: PersistentVolume, node: str) -> bool:
        return self.node_of(volume) == node or is_on_node(volume, node)

    @cached_property
    def _events(self) -> Mapping[tuple[str, str, str], Sequence[SeenEvent]]:
        found: dict[tuple[str, str, str], list[SeenEvent]] = {}
        for event in self.events or ():
            about = event.involved_object
            found.setdefault((about.kind, about.namespace, about.name), []).append(event)
        for events in found.values():
            events.sort(key=recency, reverse=True)
        return found

    def events_about(self, kind: str, thing: KubeObject) -> Sequence[SeenEvent]:
        """Events about exactly this object, newest first: not about an earlier one of its name."""
        meta = thing.metadata
        return [
            event
            for event in self._events.get((kind, meta.namespace, meta.name), ())
            if event.involved_object.uid in ("", meta.uid) or kind == "Node"
        ]

    def words_about(self, volume: PersistentVolume) -> Iterator[SeenEvent]:
        """What its own agent and the controller said about the volume, newest first.

        Kubernetes lets each agent write Events about any volume. The chart's policies only see that
        it names its own node as their source, so what another node says does not count.
        """
        label = volume.metadata.labels.get(marks.NODE_LABEL, "")
        for event in self.events_about("PersistentVolume", volume):
            host, speakers = event.source.host, _speakers(event)
            own = marks.node_key(host) == label if label else self.is_of(volume, host)
            if _CONTROLLER in speakers or (_AGENT in speakers and own):
                yield event

    def events_of_node(self, name: str) -> Sequence[SeenEvent]:
        """Our own Events about the Node, newest first."""
        found = self._events.get(("Node", "", name), ())
        return [event for event in found if is_from_us(event)]

    @cached_property
    def agents(self) -> Mapping[str, Sequence[Pod]]:
        """Our pods that a DaemonSet owns, by the name of their node."""
        found: dict[str, list[Pod]] = {}
        for pod in self.pods or ():
            if _is_owned(pod, "DaemonSet"):
                found.setdefault(pod.spec.node_name, []).append(pod)
        return found

    @property
    def controllers(self) -> Sequence[Pod]:
        """Our pods that a Deployment made."""
        return [pod for pod in self.pods or () if _is_owned(pod, "ReplicaSet")]

    @cached_property
    def capacities_by_node(self) -> Mapping[str, Sequence[CSIStorageCapacity]]:
        """The published capacities, by the key of their node and sorted by class."""
        return self._published(about_disks=False)

    @cached_property
    def disks_by_node(self) -> Mapping[str, Sequence[CSIStorageCapacity]]:
        """The objects in which agents tell of raw disks, by the key of their node."""
        return self._published(about_disks=True)

    def _published(self, *, about_disks: bool) -> dict[str, list[CSIStorageCapacity]]:
        found: dict[str, list[CSIStorageCapacity]] = {}
        for thing in sorted(self.capacities or (), key=lambda one: one.storage_class_name):
            labels = thing.metadata.labels
            if (labels.get(marks.MANAGER_LABEL) == marks.DISKS_MANAGER) == about_disks:
                found.setdefault(labels.get(marks.NODE_LABEL, ""), []).append(thing)
        return found

    @cached_property
    def memory(self) -> dict[str, Any]:
        """Cached states of volumes, by UID, or by name without one."""
        return {}


def _is_owned(pod: Pod, owner: str) -> bool:
    return any(one.kind == owner for one in pod.metadata.owner_references)


def is_from_us(event: SeenEvent) -> bool:
    """Whether one of our agents or controllers wrote it."""
    return bool({_AGENT, _CONTROLLER} & _speakers(event))


def _speakers(event: SeenEvent) -> set[str]:
    return {event.source.component, event.reporting_component}


def recency(event: SeenEvent) -> tuple[int, float]:
    """A sort key: what the API server was told last comes last, whatever a writer's clock says.

    A clock that is set back would have an agent's next word count less than its last one.
    """
    version = event.metadata.resource_version
    return int(version) if version.isdigit() else 0, moment(event.seen) or 0.0


def identity_of(volume: PersistentVolume) -> Mapping[str, str] | None:
    """As `plan` shows it; None if none is recorded, or nobody can read what is."""
    try:
        return recorded_identity(volume)
    except ValueError:
        return None


def moment(text: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 time, with or without fractions; else None."""
    try:
        parsed = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return parsed.replace(tzinfo=parsed.tzinfo or UTC).timestamp()
