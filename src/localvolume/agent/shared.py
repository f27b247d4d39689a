"""What the roles of one agent share, and what they report about themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from localvolume.agent.options import AgentOptions
from localvolume.health.plan.paths import Pools
from localvolume.host.process.workers import Workers
from localvolume.kube.client import Client
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer
from localvolume.kube.objects import Node, PersistentVolume, StorageClass
from localvolume.kube.ownpod import OwnPod
from localvolume.reconcile.loop import Loop
from localvolume.volumes import marks

if TYPE_CHECKING:
    from localvolume.backends.model import Record
    from localvolume.dynamic.calls import Volumes
    from localvolume.dynamic.model import Told
    from localvolume.dynamic.throttling.act import Throttle
    from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent, VolumeSnapshotContent


class Wake(list[Callable[..., object]]):
    """The callbacks to call after a change; each takes what is known of the change."""

    def __call__(self, *what: object) -> None:
        for one in self:
            one(*what)


@dataclass(frozen=True, slots=True)
class Wakes:
    """What may change, with the callbacks for it."""

    volumes: Wake = field(default_factory=Wake)
    """A PersistentVolume of this node."""
    classes: Wake = field(default_factory=Wake)
    """A StorageClass."""
    node: Wake = field(default_factory=Wake)
    snapshots: Wake = field(default_factory=Wake)
    """A VolumeSnapshotContent that may be this node's."""
    groups: Wake = field(default_factory=Wake)
    """A VolumeGroupSnapshotContent that may be."""
    jobs: Wake = field(default_factory=Wake)
    """A Job of ours, or its pod."""
    pod: Wake = field(default_factory=Wake)
    """What is known of the agent's own pod: what is mounted where."""
    mounts: Wake = field(default_factory=Wake)
    devices: Wake = field(default_factory=Wake)
    """A block device ("major:minor"); None: any may have changed."""
    offered: Wake = field(default_factory=Wake)
    """A look at the static volumes found nothing left to offer."""
    known: Wake = field(default_factory=Wake)
    """The first look at the pools has ended: calls can be served."""
    resync: Wake = field(default_factory=Wake)
    """No known change, but what is remembered may be wrong all the same."""


@dataclass(slots=True, kw_only=True)
class Shared:
    """The connection, the threads, the informers that more than one role reads, and what each role
    adds here when it begins."""

    options: AgentOptions
    client: Client
    events: EventRecorder
    workers: Workers
    registry: CollectorRegistry
    volumes: Informer[PersistentVolume]
    storage_classes: Informer[StorageClass]
    nodes: Informer[Node]
    own_pod: OwnPod
    wakes: Wakes
    loops: dict[str, Loop] = field(default_factory=dict)
    """The loops that must not be stuck, for liveness, by the role's name."""
    problems: list[Callable[[], Mapping[str, str]]] = field(default_factory=list)
    """What keeps the agent from being ready, by subject."""
    look_at_volumes: Callable[[], object] = lambda: None
    """Makes the static role look again."""
    pools: Callable[[], Pools] = dict
    """The pools as of the last look; set by the role that has them."""
    calls: Volumes | None = None
    """What CSI calls can do with the volumes; set by the role that has the pools."""
    check_claim: Callable[[Record], Awaitable[None]] | None = None
    """Whether a volume's claim may have what is in it; set by the same role."""

    throttle: Throttle | None = None
    """Keeps limits of reading and writing; set by the same role."""
    told: list[Callable[[], Told]] = field(default_factory=list)
    """What the contents of snapshots and of groups say is on this node."""
    snapshots: Informer[VolumeSnapshotContent] | None = None
    """Those that may be this node's; set by the role for them, which runs it."""
    groups: Informer[VolumeGroupSnapshotContent] | None = None
    """The same."""

    @property
    def own(self) -> str:
        """The label selector of this node's objects."""
        return selector_of(self.options.node_name)


def selector_of(node_name: str) -> str:
    """The label selector of a node's own objects."""
    return f"{marks.NODE_LABEL}={marks.node_key(node_name)}"
