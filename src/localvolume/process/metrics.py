"""The metrics registry of a process: what Prometheus expects of any, and its API requests."""

from __future__ import annotations

from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from localvolume.kube.errors import ApiError
from localvolume.kube.kinds import Kind

OURS: Final = "localvolume"
"""The first word of every metric that no tool we replace has."""

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""The upper bounds, in seconds, of the classes of every histogram: upstream's."""


class ProcessMetrics:
    """A registry of the process's own, not the library's global one."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._requests = Counter(
            f"{OURS}_api_requests_total",
            "All requests to the API server, by verb, resource and outcome",
            ("verb", "resource", "outcome"),
            registry=self.registry,
        )

    def request(self, verb: str, kind: Kind[Any], _seconds: float, error: ApiError | None) -> None:
        """Count one request: a hook for kube.client.Client."""
        outcome = type(error).__name__ if error else "ok"
        self._requests.labels(verb, kind.plural, outcome).inc()
