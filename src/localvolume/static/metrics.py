"""The metrics of static volumes: upstream's names, labels and buckets, and what we add.

After every look, a gauge shows the state of the whole node, never only what that look added.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from localvolume.cleaning.receipt import Progress
from localvolume.kube.objects import PersistentVolume
from localvolume.process.metrics import Metrics, counter, gauge, histogram
from localvolume.static.model import Action, Hold
from localvolume.volumes.capacity import GIB, bytes_of

_CAPACITY_STEP = 500 * GIB


def capacity_label(size_bytes: int) -> str:
    """Upstream's label for a size: the next multiple of 500 GiB, as "0G", "500G", "1000G"."""
    return f"{-(-size_bytes // _CAPACITY_STEP) * 500}G"


class StaticMetrics(Metrics):
    """All of them, on one registry."""

    # fmt: off
    capacity = gauge("local_volume_provisioner_persistentvolume_capacity_bytes",
        "Total capacity of this node's PersistentVolumes in bytes", "mode")
    discovered = counter("local_volume_provisioner_persistentvolume_discovery_total",
        "PersistentVolumes created", "mode")
    discovery_seconds = histogram(
        "local_volume_provisioner_persistentvolume_discovery_duration_seconds",
        "Seconds from seeing a usable entry to its PersistentVolume", "mode")
    deleted = counter("local_volume_provisioner_persistentvolume_delete_total",
        "PersistentVolumes deleted after cleaning", "mode", "type")
    delete_failed = counter("local_volume_provisioner_persistentvolume_delete_failed_total",
        "Failed attempts to clean a volume and delete its PersistentVolume", "mode", "type")
    delete_seconds = histogram("local_volume_provisioner_persistentvolume_delete_duration_seconds",
        "Seconds from the start of cleaning to the deleted PersistentVolume",
        "mode", "type", "capacity", "cleanup_command")
    running = gauge("local_volume_provisioner_proctable_running", "Cleanings running now")
    succeeded = gauge("local_volume_provisioner_proctable_succeeded", "Cleanings that succeeded")
    failed = gauge("local_volume_provisioner_proctable_failed", "Cleanings that failed")
    held = gauge("localvolume_held_volumes",
        "Entries and PersistentVolumes that are left alone until somebody looks, by reason",
        "class", "reason")
    volumes = gauge("localvolume_persistentvolumes",
        "PersistentVolumes of this node, by class and phase", "class", "phase")
    cleaning_done = gauge("localvolume_cleaning_done_bytes",
        "Bytes cleaned so far, by volume", "persistentvolume")
    cleaning_total = gauge("localvolume_cleaning_total_bytes",
        "Bytes to be cleaned, by volume", "persistentvolume")
    looks = counter("localvolume_discovery_looks_total", "Looks at the whole node")
    look_seconds = gauge("localvolume_discovery_last_look_seconds",
        "How long the last look took, in seconds")
    class_problem = gauge("localvolume_class_problem",
        "1 if a class's StorageClass or directory is missing or unreadable", "class")
    # fmt: on

    def tell(self, volumes: Iterable[PersistentVolume], actions: Iterable[Action]) -> None:
        """Show the state of the node after one look."""
        capacity: Tally[tuple[str, ...]] = Tally({("Filesystem",): 0, ("Block",): 0})
        phases: Tally[tuple[str, ...]] = Tally()
        for volume in volumes:
            size = bytes_of(volume.spec.capacity.get("storage", "")) or 0
            capacity[(volume.spec.volume_mode or "Filesystem",)] += size
            phases[volume.spec.storage_class_name, volume.status.phase or "Pending"] += 1
        held: Tally[tuple[str, ...]] = Tally(
            (_class_of(action), action.code) for action in actions if isinstance(action, Hold)
        )
        self.set_all(self.capacity, capacity)
        self.set_all(self.volumes, phases)
        self.set_all(self.held, held)
        # Last: a scrape that counts this look tells all of it.
        self.looks.inc()

    def classes(self, problems: dict[str, bool]) -> None:
        """Show which configured classes have a problem of their own."""
        self.set_all(self.class_problem, {(name,): bad for name, bad in problems.items()})

    def progress(self, name: str, progress: Progress) -> None:
        self.cleaning_done.labels(name).set(progress.done_bytes)
        if progress.total_bytes is not None:
            self.cleaning_total.labels(name).set(progress.total_bytes)

    def cleaning_over(self, name: str) -> None:
        for metric in (self.cleaning_done, self.cleaning_total):
            metric.remove_by_labels({"persistentvolume": name})


def _class_of(action: Hold) -> str:
    if action.volume is not None:
        return action.volume.spec.storage_class_name
    return action.entry.class_name if action.entry else ""
