"""The health metrics: the state of the whole node after every look."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge

from localvolume.health.model import Filled
from localvolume.kube.objects import PersistentVolume
from localvolume.process.metrics import Metrics, counter, gauge
from localvolume.volumes.objects import phase_of


class HealthMetrics(Metrics):
    """All of them, on one registry. `claims`: with claims' names, if all readers may see them."""

    # fmt: off
    unhealthy = gauge("localvolume_volume_unhealthy",
        "1 while a volume is not well, by what is wrong with it",
        "persistentvolume", "claim", "storageclass", "reason")
    used_bytes = gauge("localvolume_prepared_used_bytes",
        "Bytes in a prepared volume, while a claim has it",
        "persistentvolume", "claim", "storageclass")
    available_bytes = gauge("localvolume_prepared_available_bytes",
        "Bytes it can still take", "persistentvolume", "claim", "storageclass")
    used_inodes = gauge("localvolume_prepared_used_inodes",
        "Inodes in it", "persistentvolume", "claim", "storageclass")
    available_inodes = gauge("localvolume_prepared_available_inodes",
        "Inodes it can still take", "persistentvolume", "claim", "storageclass")
    unknown = gauge("localvolume_volume_health_unknown",
        "Volumes whose health nobody can tell")
    looks = counter("localvolume_health_looks_total", "Looks at the health of all volumes")
    look_seconds = gauge("localvolume_health_last_look_seconds",
        "How long the last look took, in seconds")
    # fmt: on

    def __init__(self, registry: CollectorRegistry, *, claims: bool = False) -> None:
        super().__init__(registry)
        self._claims = claims

    def tell(
        self,
        unhealthy: Iterable[tuple[PersistentVolume, str]],
        filled: Iterable[tuple[PersistentVolume, Filled]],
        unknown: int,
        seconds: float,
    ) -> None:
        """Call after a look, with the unhealthy volumes and the reason for each, and with how full
        prepared volumes are that claims have."""
        now: dict[tuple[str, ...], float] = {}
        for volume, reason in unhealthy:
            now[(*self._labels(volume), reason)] = 1
        self.set_all(self.unhealthy, now)
        rooms: dict[Gauge, dict[tuple[str, ...], float]] = {
            self.used_bytes: {},
            self.available_bytes: {},
            self.used_inodes: {},
            self.available_inodes: {},
        }
        for volume, one in filled:
            labels = self._labels(volume)
            rooms[self.used_bytes][labels] = one.used_bytes
            rooms[self.available_bytes][labels] = one.available_bytes
            if one.used_inodes is not None and one.available_inodes is not None:
                rooms[self.used_inodes][labels] = one.used_inodes
                rooms[self.available_inodes][labels] = one.available_inodes
        for metric, values in rooms.items():
            self.set_all(metric, values)
        self.unknown.set(unknown)
        self.look_seconds.set(seconds)
        self.looks.inc()

    def _labels(self, volume: PersistentVolume) -> tuple[str, str, str]:
        claim = _claim_of(volume) if self._claims else ""
        return volume.metadata.name, claim, volume.spec.storage_class_name


def _claim_of(volume: PersistentVolume) -> str:
    claim = volume.spec.claim_ref
    if claim is None or phase_of(volume) != "Bound":
        return ""
    return f"{claim.namespace}/{claim.name}"
