"""The metrics of health: the truth of the whole node after every look."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

from localvolume.kube.objects import PersistentVolume
from localvolume.process.metrics import OURS
from localvolume.volumes.objects import phase_of


class HealthMetrics:
    """All of them, on one registry; `claims`: with the names of claims, for whoever may read it."""

    def __init__(self, registry: CollectorRegistry, *, claims: bool = False) -> None:
        self._claims = claims
        self._unhealthy = Gauge(
            f"{OURS}_volume_unhealthy",
            "1 while a volume is not well, by what is wrong with it",
            ("persistentvolume", "claim", "storageclass", "reason"),
            registry=registry,
        )
        self._unknown = Gauge(
            f"{OURS}_volume_health_unknown",
            "Volumes of which nobody can tell whether they are well",
            registry=registry,
        )
        self._looks = Counter(
            f"{OURS}_health_looks_total", "Looks at the health of all volumes", registry=registry
        )
        self._seconds = Gauge(
            f"{OURS}_health_last_look_seconds",
            "How long the last of them took, in seconds",
            registry=registry,
        )

    def tell(
        self, unhealthy: Iterable[tuple[PersistentVolume, str]], unknown: int, seconds: float
    ) -> None:
        """After a look: the volumes that are not well, each with the reason."""
        self._unhealthy.clear()
        for volume, reason in unhealthy:
            name, spec = volume.metadata.name, volume.spec
            claim = _claim_of(volume) if self._claims else ""
            labels = (name, claim, spec.storage_class_name, reason)
            self._unhealthy.labels(*labels).set(1)
        self._unknown.set(unknown)
        self._seconds.set(seconds)
        self._looks.inc()


def _claim_of(volume: PersistentVolume) -> str:
    claim = volume.spec.claim_ref
    if claim is None or phase_of(volume) != "Bound":
        return ""
    return f"{claim.namespace}/{claim.name}"
