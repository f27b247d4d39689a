"""The metrics of FlexVolume: what was asked, how it ended, and what there is."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from localvolume.process.metrics import BUCKETS, OURS


class FlexMetrics:
    """All of them but the collector's, on one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(
            f"{OURS}_flexvolume_calls_total",
            "Calls of the driver's client, by result: success, failure, or error for those that "
            "could not be read or for which the API server did not do its part",
            ("callout", "result"),
            registry=registry,
        )
        self._seconds = Histogram(
            f"{OURS}_flexvolume_call_duration_seconds",
            "Seconds a call of the driver's client took",
            ("callout",),
            registry=registry,
            buckets=BUCKETS,
        )
        self._volumes = Gauge(
            f"{OURS}_flexvolume_volumes", "FlexVolume volumes on this node", registry=registry
        )
        self._bytes = Gauge(
            f"{OURS}_flexvolume_volumes_bytes", "What they were made for", registry=registry
        )
        self._adopted = Counter(
            f"{OURS}_flexvolume_adopted_total",
            "Volumes of elastic's driver that were marked as ours",
            registry=registry,
        )

    def called(self, callout: str, result: str, seconds: float) -> None:
        """A call has ended."""
        self._calls.labels(callout, result).inc()
        self._seconds.labels(callout).observe(seconds)

    def there(self, volumes: int, size_bytes: int) -> None:
        """After a look at the volumes."""
        self._volumes.set(volumes)
        self._bytes.set(size_bytes)

    def adopted(self, volumes: int) -> None:
        self._adopted.inc(volumes)
