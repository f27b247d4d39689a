"""The metrics of FlexVolume's collector: what went, what is due, what is kept for good."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from localvolume.flexvolume.plan.collect import Action, Keep
from localvolume.process.metrics import OURS


class CollectorMetrics:
    """What has been removed, and what is waiting for it or will not be."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.removed = Counter(
            f"{OURS}_flexvolume_removed_total",
            "FlexVolume volumes removed after their PersistentVolume was gone",
            registry=registry,
        )
        self.failed = Counter(
            f"{OURS}_flexvolume_remove_failed_total",
            "Attempts to remove a FlexVolume volume that failed or were not finished",
            registry=registry,
        )
        self.gone = Gauge(
            f"{OURS}_flexvolume_gone_volumes",
            "FlexVolume volumes without a PersistentVolume: due for removal, or kept for good",
            ("fate",),
            registry=registry,
        )

    def tell(self, actions: Sequence[Action], gone: Collection[str]) -> None:
        """After a sweep."""
        kept = sum(
            isinstance(one, Keep) and not one.waiting and one.volume.name in gone for one in actions
        )
        self.gone.labels("kept").set(kept)
        self.gone.labels("due").set(len(gone) - kept)
