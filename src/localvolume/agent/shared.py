"""What the roles of one agent have in common."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from localvolume.agent.paces import Paces
from localvolume.host.process.workers import Workers
from localvolume.kube.client import Client
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer
from localvolume.kube.objects import Node, PersistentVolume, StorageClass
from localvolume.kube.ownpod import OwnPod
from localvolume.volumes.periods import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The connection, the threads, and the informers that more than one role reads."""

    client: Client
    events: EventRecorder
    workers: Workers
    registry: CollectorRegistry
    claims_in_metrics: bool
    volumes: Informer[PersistentVolume]
    storage_classes: Informer[StorageClass]
    nodes: Informer[Node]
    own_pod: OwnPod
    node_name: str
    namespace: str
    paces: Paces
    clock: Clock
