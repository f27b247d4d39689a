"""The metrics of dynamic volumes: the external-provisioner library's names, and what we add.

After every look, the gauges describe the whole node.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from localvolume.backends.capacity import capacity
from localvolume.dynamic.model import Action, Hold, Pool, Reject
from localvolume.dynamic.plan.orphans import Orphan
from localvolume.process.metrics import Metrics, counter, gauge, histogram

SOURCE: Final = ""
"""The library's label `source` says what a claim is filled from; ours are never filled."""

_VOLUME = ("pool", "persistentvolume", "claim")

_Found = dict[Gauge, dict[tuple[str, ...], float]]
"""What one look found, by gauge and labels."""


class DynamicMetrics(Metrics):
    """All of them, on one registry. `claims`: add the names of claims, which every reader sees."""

    # fmt: off
    claims_made = counter("controller_persistentvolumeclaim_provision_total",
        "Claims that were given a volume", "class", "source")
    claims_failed = counter("controller_persistentvolumeclaim_provision_failed_total",
        "Failed attempts to give a claim a volume", "class", "source")
    claim_seconds = histogram("controller_persistentvolumeclaim_provision_duration_seconds",
        "Seconds from the decision to make a volume to its PersistentVolume", "class", "source")
    volumes_removed = counter("controller_persistentvolume_delete_total",
        "Volumes removed with their claims", "class")
    volumes_not_removed = counter("controller_persistentvolume_delete_failed_total",
        "Failed attempts to remove a volume", "class")
    removal_seconds = histogram("controller_persistentvolume_delete_duration_seconds",
        "Seconds it took to move a volume away and let its PersistentVolume go", "class")
    volumes_not_grown = counter("localvolume_grow_failed_total",
        "Failed attempts to let a volume grow", "class")
    looks = counter("localvolume_dynamic_looks_total", "Completed looks at claims and pools")
    pool_problem = gauge("localvolume_pool_problem",
        "1 while a pool cannot be used as configured", "pool")
    pool_size = gauge("localvolume_pool_size_bytes",
        "Size of a pool's filesystem or group", "pool")
    pool_free = gauge("localvolume_pool_available_bytes", "What is free in it", "pool")
    pool_capacity = gauge("localvolume_pool_room_bytes", "What may still be promised", "pool")
    pool_volumes = gauge("localvolume_pool_volumes", "Volumes in a pool", "pool", "state")
    pool_inline = gauge("localvolume_pool_inline_bytes",
        "What volumes of pods' own specs take from a pool", "pool")
    pool_inline_limit = gauge("localvolume_pool_inline_limit_bytes",
        "What volumes of pods' own specs may take from a pool", "pool")
    pool_data = gauge("localvolume_pool_data_percent", "How full a thin pool's data is", "pool")
    pool_metadata = gauge("localvolume_pool_metadata_percent",
        "How full a thin pool's metadata is", "pool")
    pool_warnings = gauge("localvolume_pool_warnings",
        "Things in a pool that need attention before they become a problem", "pool")
    orphans = gauge("localvolume_pool_orphans",
        "What lies in a pool without a PersistentVolume", "pool")
    used = gauge("localvolume_volume_used_bytes", "Bytes in a volume", *_VOLUME)
    available = gauge("localvolume_volume_available_bytes", "Bytes it can still take", *_VOLUME)
    used_inodes = gauge("localvolume_volume_used_inodes", "Inodes in a volume", *_VOLUME)
    available_inodes = gauge("localvolume_volume_available_inodes",
        "Inodes it can take", *_VOLUME)
    size = gauge("localvolume_volume_size_bytes", "The size for which a volume was made", *_VOLUME)
    escaped = gauge("localvolume_volume_limit_escaped",
        "1 while a volume holds what its limit does not count", *_VOLUME)
    held = gauge("localvolume_dynamic_held",
        "Claims and volumes for which nothing can be done now")
    purged_files = gauge("localvolume_purge_files",
        "Files of a removed volume that are deleted so far", "persistentvolume")
    purged_bytes = gauge("localvolume_purge_bytes",
        "Bytes of a removed volume that are deleted so far", "persistentvolume")
    # fmt: on

    def __init__(self, registry: CollectorRegistry, *, claims: bool = False) -> None:
        super().__init__(registry)
        self._claims = claims

    def purging(self, name: str, files: int, size: int) -> None:
        self.purged_files.labels(name).set(files)
        self.purged_bytes.labels(name).set(size)

    def purge_over(self, name: str) -> None:
        for one in (self.purged_files, self.purged_bytes):
            one.remove_by_labels({"persistentvolume": name})

    def tell(
        self,
        pools: Sequence[Pool],
        orphans: Iterable[Orphan],
        actions: Iterable[Action],
        unable: Collection[str] = (),
    ) -> None:
        """Tell of the pools, their orphans and what is held, after a look. `unable` are the names
        of pools that cannot do what they are asked."""
        found: _Found = {
            getattr(self, attribute): {}
            for attribute, row in self.declared().items()
            if "pool" in row.labels
        }
        for pool in pools:
            self._find(found, pool, unable=pool.config.name in unable)
        orphaned = Tally(orphan.pool for orphan in orphans)
        for pool in pools:
            found[self.orphans][(pool.config.name,)] = orphaned[pool.config.name]
        for metric, values in found.items():
            self.set_all(metric, values)
        self.held.set(sum(isinstance(action, Hold | Reject) for action in actions))
        # Last: a scrape that counts this look tells all of it.
        self.looks.inc()

    def _find(self, found: _Found, pool: Pool, *, unable: bool) -> None:
        name, report = pool.config.name, pool.report
        of_pool = (name,)
        found[self.pool_problem][of_pool] = bool(report.problem) or unable
        if report.problem:
            return
        found[self.pool_size][of_pool] = report.total_bytes
        found[self.pool_free][of_pool] = report.available_bytes
        if not unable:
            # An unable pool serves only some of those who ask: no number is true for all.
            room = capacity(pool.config, report, pool.beside)
            found[self.pool_capacity][of_pool] = room
        own = sum(record.size_bytes for record in report.records.values() if record.pod_uid)
        if own or pool.config.inline is not None:
            found[self.pool_inline][of_pool] = own
        if pool.config.inline is not None:
            found[self.pool_inline_limit][of_pool] = pool.config.inline.total_bytes
        found[self.pool_warnings][of_pool] = len(report.warnings)
        for metric, percent in (
            (self.pool_data, report.data_percent),
            (self.pool_metadata, report.metadata_percent),
        ):
            if percent is not None:
                found[metric][of_pool] = percent
        states = Tally(record.state for record in report.records.values())
        for state, count in states.items():
            found[self.pool_volumes][name, state] = count
        for record in report.records.values():
            if record.state == "removed":
                continue
            labels = (name, record.name, record.claim if self._claims else "")
            found[self.size][labels] = record.size_bytes
            usage = report.usage.get(record.name)
            if usage is None:
                continue
            if usage.problem:
                found[self.escaped][labels] = 1
            for metric, value in (
                (self.used, usage.used_bytes),
                (self.available, usage.available_bytes),
                (self.used_inodes, usage.used_inodes),
                (self.available_inodes, usage.available_inodes),
            ):
                if value is not None:
                    found[metric][labels] = value
