"""The metrics of the process as a whole: configuration, API requests, host calls, watches."""

from __future__ import annotations

from typing import Any

from localvolume.host.process.workers import Workers
from localvolume.kube.errors import ApiError, NotThere
from localvolume.kube.kinds import PERSISTENT_VOLUMES, Kind
from localvolume.process.metrics import ProcessMetrics, counter, gauge, histogram


class AgentMetrics(ProcessMetrics):
    """The agent's metrics, on one registry of its own."""

    # fmt: off
    volume_requests = counter("local_volume_provisioner_apiserver_requests_total",
        "Requests about PersistentVolumes to the API server", "method")
    volume_requests_failed = counter("local_volume_provisioner_apiserver_requests_failed_total",
        "Requests about PersistentVolumes that failed", "method")
    volume_request_seconds = histogram(
        "local_volume_provisioner_apiserver_requests_duration_seconds",
        "Seconds a request about a PersistentVolume took", "method")
    configuration_valid = gauge("localvolume_config_valid",
        "1 while the configuration in the directory is the one in force, 0 while it is invalid")
    configuration_reloads = counter("localvolume_config_reloads_total",
        "Times the configuration was read again, by outcome", "result")
    hung = gauge("localvolume_host_calls_hung",
        "Calls to the host that missed their deadline and have not returned yet")
    # fmt: on

    def watch_workers(self, *several: Workers) -> None:
        """Count the hung host calls of all these workers whenever the metric is read."""
        self.hung.set_function(
            lambda: float(sum(sum(workers.hung.values()) for workers in several))
        )

    def request(self, verb: str, kind: Kind[Any], seconds: float, error: ApiError | None) -> None:
        """Count one request; it is no failure if an object to delete is already gone."""
        super().request(verb, kind, seconds, error)
        if kind is not PERSISTENT_VOLUMES or verb not in ("create", "delete"):
            return
        self.volume_requests.labels(verb).inc()
        self.volume_request_seconds.labels(verb).observe(seconds)
        if error and not isinstance(error, NotThere):
            self.volume_requests_failed.labels(verb).inc()
