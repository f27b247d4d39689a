"""Metrics declared as tables, and those that every process has: its API requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from localvolume.kube.errors import ApiError
from localvolume.kube.kinds import Kind

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""The upper bounds of the buckets of every histogram, in seconds: upstream's."""

M = TypeVar("M", Counter, Gauge, Histogram)


@dataclass(frozen=True)
class Declared(Generic[M]):
    """One row of a table of metrics. Names that begin with `localvolume_` are ours."""

    kind: type[M]
    name: str
    text: str
    labels: tuple[str, ...]

    if TYPE_CHECKING:
        # The attribute is the row on the class, and the metric itself on an instance.
        def __get__(self, metrics: Metrics, of: type[Metrics]) -> M: ...


def counter(name: str, text: str, *labels: str) -> Declared[Counter]:
    return Declared(Counter, name, text, labels)


def gauge(name: str, text: str, *labels: str) -> Declared[Gauge]:
    return Declared(Gauge, name, text, labels)


def histogram(name: str, text: str, *labels: str) -> Declared[Histogram]:
    return Declared(Histogram, name, text, labels)


class Metrics:
    """The metrics of a table, made on one registry. Each subclass is a table."""

    def __init__(self, registry: CollectorRegistry) -> None:
        for attribute, row in self.declared().items():
            more = {"buckets": BUCKETS} if row.kind is Histogram else {}
            made = row.kind(row.name, row.text, row.labels, registry=registry, **more)
            setattr(self, attribute, made)
        self._shown: dict[Gauge, set[tuple[str, ...]]] = {}

    def set_all(self, metric: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
        """Set these children, by their labels, and remove those of the last call that are gone.

        Scrapes are answered in threads. A metric that is emptied and filled again would tell a
        scrape in between that nothing is there.
        """
        for labels, value in values.items():
            metric.labels(*labels).set(value)
        for labels in self._shown.get(metric, set()) - set(values):
            metric.remove(*labels)
        self._shown[metric] = set(values)

    @classmethod
    def declared(cls) -> dict[str, Declared[Any]]:
        """The rows by their attributes, in order; those of base classes come first."""
        there = (item for base in reversed(cls.__mro__) for item in vars(base).items())
        return {attribute: row for attribute, row in there if isinstance(row, Declared)}


class ProcessMetrics(Metrics):
    """The metrics of any process, on a registry of its own, not the library's global one."""

    # fmt: off
    requests = counter("localvolume_api_requests_total",
        "All requests to the API server, by verb, resource and outcome",
        "verb", "resource", "outcome")
    # fmt: on

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        super().__init__(self.registry)

    def request(self, verb: str, kind: Kind[Any], _seconds: float, error: ApiError | None) -> None:
        """Count one request: a hook for kube.client.Client."""
        outcome = type(error).__name__ if error else "ok"
        self.requests.labels(verb, kind.plural, outcome).inc()
