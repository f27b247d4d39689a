"""The metrics of dynamic volumes: the external-provisioner library's names, and what we add.

Gauges tell the truth of the whole node after every look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from localvolume.backends.capacity import room
from localvolume.dynamic.model import Action, Hold, Pool, Reject
from localvolume.dynamic.plan.orphans import Orphan
from localvolume.process.metrics import BUCKETS, OURS

LIBRARY = "controller"
_SOURCE = ""
"""The library's label `source` tells what a claim is filled from; ours are never filled."""


class DynamicMetrics:
    """All of them, on one registry; `claims`: with the names of claims, for whoever may read it."""

    def __init__(self, registry: CollectorRegistry, *, claims: bool = False) -> None:
        self._claims = claims

        def counter(name: str, text: str, labels: tuple[str, ...]) -> Counter:
            return Counter(f"{LIBRARY}_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, labels: tuple[str, ...]) -> Histogram:
            return Histogram(f"{LIBRARY}_{name}", text, labels, registry=registry, buckets=BUCKETS)

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"{OURS}_{name}", text, labels, registry=registry)

        self._made = counter(
            "persistentvolumeclaim_provision_total",
            "Claims that were given a volume",
            ("class", "source"),
        )
        self._failed = counter(
            "persistentvolumeclaim_provision_failed_total",
            "Failed attempts to give a claim a volume",
            ("class", "source"),
        )
        self._seconds = histogram(
            "persistentvolumeclaim_provision_duration_seconds",
            "Seconds from the decision to make a volume to its PersistentVolume",
            ("class", "source"),
        )
        self._removed = counter(
            "persistentvolume_delete_total", "Volumes removed with their claims", ("class",)
        )
        self._not_removed = counter(
            "persistentvolume_delete_failed_total", "Failed attempts to remove a volume", ("class",)
        )
        self._removed_seconds = histogram(
            "persistentvolume_delete_duration_seconds",
            "Seconds it took to move a volume away and let its PersistentVolume go",
            ("class",),
        )
        self._not_grown = Counter(
            f"{OURS}_grow_failed_total",
            "Failed attempts to let a volume grow",
            ("class",),
            registry=registry,
        )
        self.looks = Counter(
            f"{OURS}_dynamic_looks_total", "Completed looks at claims and pools", registry=registry
        )
        self._pool_problem = gauge(
            "pool_problem", "1 while a pool cannot be used as it is asked", ("pool",)
        )
        self._pool_size = gauge(
            "pool_size_bytes", "Size of a pool's filesystem or group", ("pool",)
        )
        self._pool_free = gauge("pool_available_bytes", "What is free in it", ("pool",))
        self._pool_room = gauge("pool_room_bytes", "What may still be promised", ("pool",))
        self._pool_volumes = gauge("pool_volumes", "Volumes in a pool", ("pool", "state"))
        self._pool_data = gauge("pool_data_percent", "How full a thin pool's data is", ("pool",))
        self._pool_metadata = gauge(
            "pool_metadata_percent", "How full a thin pool's metadata is", ("pool",)
        )
        self._pool_warnings = gauge(
            "pool_warnings", "What of a pool people must look at before it is a problem", ("pool",)
        )
        self._orphans = gauge(
            "pool_orphans", "What lies in a pool without a PersistentVolume", ("pool",)
        )
        labels = ("pool", "persistentvolume", "claim")
        self._used = gauge("volume_used_bytes", "Bytes in a volume", labels)
        self._available = gauge("volume_available_bytes", "Bytes it can still take", labels)
        self._used_inodes = gauge("volume_used_inodes", "Inodes in a volume", labels)
        self._available_inodes = gauge("volume_available_inodes", "Inodes it can take", labels)
        self._size = gauge("volume_size_bytes", "What a volume was made for", labels)
        self._problem = gauge(
            "volume_limit_escaped", "1 while a volume holds what its limit does not count", labels
        )
        self._held = gauge("dynamic_held", "Claims and volumes for which nothing can be done now")
        self._purging = gauge(
            "purge_files", "Files deleted so far of a removed volume", ("persistentvolume",)
        )
        self._purging_bytes = gauge(
            "purge_bytes", "Bytes deleted so far of a removed volume", ("persistentvolume",)
        )

    def made(self, class_name: str, seconds: float) -> None:
        self._made.labels(class_name, _SOURCE).inc()
        self._seconds.labels(class_name, _SOURCE).observe(seconds)

    def failed(self, class_name: str) -> None:
        self._failed.labels(class_name, _SOURCE).inc()

    def removed(self, class_name: str, seconds: float) -> None:
        self._removed.labels(class_name).inc()
        self._removed_seconds.labels(class_name).observe(seconds)

    def not_removed(self, class_name: str) -> None:
        self._not_removed.labels(class_name).inc()

    def not_grown(self, class_name: str) -> None:
        self._not_grown.labels(class_name).inc()

    def purging(self, name: str, files: int, size: int) -> None:
        self._purging.labels(name).set(files)
        self._purging_bytes.labels(name).set(size)

    def purge_over(self, name: str) -> None:
        for one in (self._purging, self._purging_bytes):
            one.remove_by_labels({"persistentvolume": name})

    def tell(
        self,
        pools: Sequence[Pool],
        orphans: Iterable[Orphan],
        actions: Iterable[Action],
        unable: Collection[str] = (),
    ) -> None:
        """After a look: the pools, their orphans, and what is held. `unable` are the names of those
        pools that cannot do what they are asked."""
        for one in (
            self._pool_problem,
            self._pool_size,
            self._pool_free,
            self._pool_room,
            self._pool_volumes,
            self._pool_data,
            self._pool_metadata,
            self._pool_warnings,
            self._orphans,
            self._used,
            self._available,
            self._used_inodes,
            self._available_inodes,
            self._size,
            self._problem,
        ):
            one.clear()
        for pool in pools:
            self._tell(pool, unable=pool.config.name in unable)
            self._orphans.labels(pool.config.name).set(0)
        for orphan in orphans:
            self._orphans.labels(orphan.pool).inc()
        self.looks.inc()
        self._held.set(sum(isinstance(action, Hold | Reject) for action in actions))

    def _tell(self, pool: Pool, *, unable: bool) -> None:
        name, report = pool.config.name, pool.report
        self._pool_problem.labels(name).set(bool(report.problem) or unable)
        if report.problem:
            return
        self._pool_size.labels(name).set(report.total_bytes)
        self._pool_free.labels(name).set(report.available_bytes)
        if not unable:
            # Nobody who asks for it could have it: no number would be true of all.
            self._pool_room.labels(name).set(room(pool.config, report, pool.beside))
        self._pool_warnings.labels(name).set(len(report.warnings))
        for gauge, percent in (
            (self._pool_data, report.data_percent),
            (self._pool_metadata, report.metadata_percent),
        ):
            if percent is not None:
                gauge.labels(name).set(percent)
        for record in report.records.values():
            self._pool_volumes.labels(name, record.state).inc()
            if record.state == "removed":
                continue
            labels = (name, record.name, record.claim if self._claims else "")
            self._size.labels(*labels).set(record.size_bytes)
            usage = report.usage.get(record.name)
            if usage is None:
                continue
            if usage.problem:
                self._problem.labels(*labels).set(1)
            for metric, value in (
                (self._used, usage.used_bytes),
                (self._available, usage.available_bytes),
                (self._used_inodes, usage.used_inodes),
                (self._available_inodes, usage.available_inodes),
            ):
                if value is not None:
                    metric.labels(*labels).set(value)
