"""The metrics of disks: how many have which verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, get_args

from prometheus_client import CollectorRegistry, Gauge

from localvolume.disks.model import Judged, Verdict
from localvolume.process.metrics import OURS

VERDICTS: Final[tuple[str, ...]] = get_args(Verdict)


class DiskTelemetry:
    """All of them, on one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._disks = Gauge(
            f"{OURS}_disks",
            "Disks and partitions of this node by what the plan says of them: format and link "
            "(once approved), mount, done, hold (a filter means it, and something is against it), "
            "skip (no filter means it)",
            ("verdict",),
            registry=registry,
        )

    def looked(self, rows: Iterable[Judged]) -> None:
        """After a look at all disks; none, where there are no filters any more."""
        counted = Counter(row.verdict for row in rows)
        for verdict in VERDICTS:
            self._disks.labels(verdict).set(counted[verdict])  # type: ignore[index]
