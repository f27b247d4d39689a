"""The metrics of the process as a whole: configuration, API requests, host calls, watches."""

from __future__ import annotations

from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from localvolume.host.process.workers import Workers
from localvolume.kube.errors import ApiError, NotThere
from localvolume.kube.kinds import PERSISTENT_VOLUMES, Kind
from localvolume.process.metrics import BUCKETS, OURS, ProcessMetrics
from localvolume.static.metrics import UPSTREAM


class AgentMetrics(ProcessMetrics):
    """All of them, on one registry of the process's own."""

    def __init__(self) -> None:
        super().__init__()
        registry = self.registry
        self._volume_requests = Counter(
            f"{UPSTREAM}_apiserver_requests_total",
            "Requests about PersistentVolumes to the API server",
            ("method",),
            registry=registry,
        )
        self._volume_requests_failed = Counter(
            f"{UPSTREAM}_apiserver_requests_failed_total",
            "Requests about PersistentVolumes that failed",
            ("method",),
            registry=registry,
        )
        self._volume_request_seconds = Histogram(
            f"{UPSTREAM}_apiserver_requests_duration_seconds",
            "Seconds a request about a PersistentVolume took",
            ("method",),
            registry=registry,
            buckets=BUCKETS,
        )
        self.configuration_valid = Gauge(
            f"{OURS}_config_valid",
            "1 while the configuration in the directory is the one in force, 0 while it is invalid",
            registry=registry,
        )
        self.configuration_reloads = Counter(
            f"{OURS}_config_reloads_total",
            "Times the configuration was read again, by outcome",
            ("result",),
            registry=registry,
        )
        self._hung = Gauge(
            f"{OURS}_host_calls_hung",
            "Calls to the host that missed their deadline and have not returned yet",
            registry=registry,
        )

    def watch_workers(self, *several: Workers) -> None:
        """Show how many host calls of all these hang, whenever somebody asks."""
        self._hung.set_function(
            lambda: float(sum(sum(workers.hung.values()) for workers in several))
        )

    def request(self, verb: str, kind: Kind[Any], seconds: float, error: ApiError | None) -> None:
        """Count one request; that a deleted object is gone already is no failure."""
        super().request(verb, kind, seconds, error)
        if kind is not PERSISTENT_VOLUMES or verb not in ("create", "delete"):
            return
        self._volume_requests.labels(verb).inc()
        self._volume_request_seconds.labels(verb).observe(seconds)
        if error and not isinstance(error, NotThere):
            self._volume_requests_failed.labels(verb).inc()
