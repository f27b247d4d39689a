"""The health metrics: the state of the whole node after every look."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry

from localvolume.kube.objects import PersistentVolume
from localvolume.process.metrics import Metrics, counter, gauge
from localvolume.volumes.objects import phase_of


class HealthMetrics(Metrics):
    """All of them, on one registry. `claims`: with claims' names, if all readers may see them."""

    # fmt: off
    unhealthy = gauge("localvolume_volume_unhealthy",
        "1 while a volume is not well, by what is wrong with it",
        "persistentvolume", "claim", "storageclass", "reason")
    unknown = gauge("localvolume_volume_health_unknown",
        "Volumes of which nobody can tell whether they are well")
    looks = counter("localvolume_health_looks_total", "Looks at the health of all volumes")
    look_seconds = gauge("localvolume_health_last_look_seconds",
        "How long the last of them took, in seconds")
    # fmt: on

    def __init__(self, registry: CollectorRegistry, *, claims: bool = False) -> None:
        super().__init__(registry)
        self._claims = claims

    def tell(
        self, unhealthy: Iterable[tuple[PersistentVolume, str]], unknown: int, seconds: float
    ) -> None:
        """Call after a look, with the unhealthy volumes and the reason for each."""
        now: dict[tuple[str, ...], float] = {}
        for volume, reason in unhealthy:
            name, spec = volume.metadata.name, volume.spec
            claim = _claim_of(volume) if self._claims else ""
            now[name, claim, spec.storage_class_name, reason] = 1
        self.set_all(self.unhealthy, now)
        self.unknown.set(unknown)
        self.look_seconds.set(seconds)
        self.looks.inc()


def _claim_of(volume: PersistentVolume) -> str:
    claim = volume.spec.claim_ref
    if claim is None or phase_of(volume) != "Bound":
        return ""
    return f"{claim.namespace}/{claim.name}"
