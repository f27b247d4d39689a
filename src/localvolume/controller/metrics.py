"""The controller's metrics: those of upstream's node-cleanup under their names, and ours."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from localvolume.controller.caches.cluster import Cluster
from localvolume.controller.caches.demand import Demand
from localvolume.controller.model import (
    Action,
    DeleteClaim,
    DeleteVolume,
    LetGo,
    MarkLost,
    Report,
    Wait,
)
from localvolume.process.metrics import ProcessMetrics, counter, gauge


class ControllerMetrics(ProcessMetrics):
    """All of them, on the process's own registry. Those that begin with `controller_` come from
    sig-storage-lib-external-provisioner, on which elastic's provisioner is built."""

    # fmt: off
    volumes_deleted = counter("local_volume_node_cleanup_persistentvolume_delete_total",
        "PersistentVolumes of lost nodes that were deleted, by their phase", "phase")
    volumes_failed = counter("local_volume_node_cleanup_persistentvolume_delete_failed_total",
        "Failed attempts to delete the PersistentVolume of a lost node, by its phase", "phase")
    claims_deleted = counter("local_volume_node_cleanup_persistentvolumeclaim_delete_total",
        "Claims on volumes of lost nodes that were deleted")
    claims_failed = counter("local_volume_node_cleanup_persistentvolumeclaim_delete_failed_total",
        "Failed attempts to delete the claim on a volume of a lost node")
    adopted = counter("localvolume_adopted_total",
        "PersistentVolumes of other provisioners that got our label")
    routed = counter("localvolume_routed_claims_total",
        "Claims whose node was written down (routed) or removed again (unrouted), or whose "
        "selected node was removed because it does not exist or fit (rescheduled)", "result")
    provisioned = counter("controller_persistentvolumeclaim_provision_total",
        "Claims that were given a FlexVolume PersistentVolume", "class", "source")
    not_provisioned = counter("controller_persistentvolumeclaim_provision_failed_total",
        "Failed attempts to give a claim a FlexVolume PersistentVolume", "class", "source")
    flex_deleted = counter("controller_persistentvolume_delete_total",
        "FlexVolume PersistentVolumes deleted after their claims", "class")
    flex_not_deleted = counter("controller_persistentvolume_delete_failed_total",
        "Failed attempts to delete a FlexVolume PersistentVolume", "class")
    unroutable = gauge("localvolume_unroutable_claims",
        "Claims that no node takes: of Immediate classes, and those that wait for their first "
        "pod where pools have a problem")
    lost = gauge("localvolume_lost_volumes",
        "Volumes without a node that could serve them, by what is done about them: "
        "noticed, waiting, deleting, would-delete (the class is not listed), kept",
        "storageclass", "action")
    lost_contents = gauge("localvolume_lost_snapshot_contents",
        "VolumeSnapshotContents whose node is gone, as of the last look")
    leader = gauge("localvolume_leader", "1 while this replica leads, 0 while it stands by")
    cached = gauge("localvolume_cached_objects", "Objects held in memory", "resource")
    # fmt: on

    def __init__(self) -> None:
        super().__init__()
        self._actions: dict[str, tuple[str, str]] = {}

    def watch(self, cluster: Cluster, demand: Demand) -> None:
        """Show how many objects are held, counted on each scrape."""
        held: dict[str, Mapping[str, object]] = {
            "persistentvolumes": cluster.volumes.items,
            "nodes": cluster.nodes.items,
            "persistentvolumeclaims": demand.claims.items,
            "storageclasses": demand.classes.items,
            "csistoragecapacities": demand.capacities.items,
        }
        for resource, items in held.items():
            self.cached.labels(resource).set_function(partial(_count, items))

    def leading(self, leads: bool) -> None:
        """Set whether this replica leads. Only the leader reports lost volumes."""
        self.leader.set(leads)
        if not leads:
            self.lost_contents.set(0)
            for known in set(self._actions.values()):
                self.lost.remove(*known)
            self._actions.clear()

    def judged(self, name: str, action: Action | None) -> bool:
        """Count the volume under what is due now (None: it is gone). True if its node is lost."""
        fate = _action(action) if action is not None else ""
        before = self._actions.pop(name, None)
        if action is None or not fate:
            if before is not None:
                self.lost.labels(*before).dec()
            return False
        now = self._actions[name] = (action.volume.spec.storage_class_name, fate)
        if now != before:
            self.lost.labels(*now).inc()
            if before is not None:
                self.lost.labels(*before).dec()
        return True


def _count(items: Mapping[str, object]) -> float:
    return float(len(items))


def _action(action: Action) -> str:
    """What is done about a volume whose nodes are all gone; "" for any other."""
    match action:
        case MarkLost():
            return "noticed"
        case Wait():
            return "waiting"
        case DeleteClaim() | DeleteVolume() | LetGo():
            return "deleting"
        case Report():
            return "would-delete" if action.would else "kept"
    return ""
