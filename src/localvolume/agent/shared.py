"""What the roles of one agent have in common, and what they tell of themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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


class Wake(list[Callable[..., object]]):
    """Who looks again once something has changed; each takes what is said of it."""

    def __call__(self, *what: object) -> None:
        for one in self:
            one(*what)


@dataclass(frozen=True, slots=True)
class Wakes:
    """What may change."""

    volumes: Wake = field(default_factory=Wake)
    """A PersistentVolume of this node."""
    classes: Wake = field(default_factory=Wake)
    """A StorageClass."""
    node: Wake = field(default_factory=Wake)
    jobs: Wake = field(default_factory=Wake)
    """A Job of ours, or its pod."""
    pod: Wake = field(default_factory=Wake)
    """What is known of the agent's own pod: what is mounted where."""
    mounts: Wake = field(default_factory=Wake)
    devices: Wake = field(default_factory=Wake)
    """A block device ("major:minor"); None: any may have."""
    offered: Wake = field(default_factory=Wake)
    """A look at the static volumes found nothing left to be offered."""
    resync: Wake = field(default_factory=Wake)
    """Nothing that is known of; what is remembered may be wrong all the same."""


@dataclass(slots=True, kw_only=True)
class Shared:
    """The connection, the threads, the informers that more than one role reads, and what each role
    enters here when it is begun."""

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
    """Of which liveness asks whether they are stuck, by the role's name."""
    problems: list[Callable[[], Mapping[str, str]]] = field(default_factory=list)
    """What keeps the agent from being ready, by what it is about."""
    look_at_volumes: Callable[[], object] = lambda: None
    """Have the static role look once more."""
    pools: Callable[[], Pools] = dict
    """The pools as they were last looked at; of the role that has some."""

    @property
    def own(self) -> str:
        """The label selector of what is this node's."""
        return selector_of(self.options.node_name)


def selector_of(node_name: str) -> str:
    """The label selector of a node's own objects."""
    return f"{marks.NODE_LABEL}={marks.node_key(node_name)}"
