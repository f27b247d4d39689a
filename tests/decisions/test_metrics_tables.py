"""What a table of metrics declares is what its registry exposes."""

from __future__ import annotations

import inspect

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from docsite.metrics import TABLES
from localvolume.process.metrics import (
    BUCKETS,
    Metrics,
    ProcessMetrics,
    counter,
    gauge,
    histogram,
)


class First(Metrics):
    done = counter("done_total", "What was done", "kind", "way")
    here = gauge("here", "What is here")


class Second(First):
    took = histogram("took_seconds", "How long it took")


def made(table: type[Metrics]) -> tuple[Metrics, CollectorRegistry]:
    """The metrics of a table, on a registry that holds nothing else of ours."""
    registry = CollectorRegistry()
    if issubclass(table, ProcessMetrics):
        assert not inspect.signature(table).parameters
        metrics = table()
        return metrics, metrics.registry
    return table(registry), registry


@pytest.mark.parametrize("table", [First, Second, *TABLES])
def test_the_rows_are_what_the_registry_exposes(table: type[Metrics]) -> None:
    metrics, registry = made(table)
    exposed = {family.name: family for family in registry.collect()}
    ours = [name for name in exposed if not name.startswith(("process_", "python_"))]
    rows = table.declared()
    assert [row.name.removesuffix("_total") for row in rows.values()] == ours
    for attribute, row in rows.items():
        metric = getattr(metrics, attribute)
        assert type(metric) is row.kind
        assert row.name.endswith("_total") == (row.kind is Counter)
        family = exposed[row.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (row.kind.__name__.lower(), row.text)
        # A metric without labels is there from the start, with labels once they have values.
        assert bool(family.samples) == (not row.labels)
        if row.labels:
            metric.labels(**dict.fromkeys(row.labels, "x"))
            (family,) = metric.collect()
        assert {*row.labels} == {*family.samples[0].labels} - {"le"}


def test_what_is_declared_comes_after_what_it_extends() -> None:
    assert list(Second.declared()) == ["done", "here", "took"]
    assert list(First.declared()) == ["done", "here"]


def test_the_metrics_are_those_of_one_registry() -> None:
    one, other = CollectorRegistry(), CollectorRegistry()
    first, _ = Second(one), Second(other)
    done: Counter = first.done
    here: Gauge = first.here
    took: Histogram = first.took
    done.labels("a", "b").inc()
    here.set(2)
    took.observe(0.3)
    assert one.get_sample_value("done_total", {"kind": "a", "way": "b"}) == 1
    assert one.get_sample_value("here") == 2
    assert one.get_sample_value("took_seconds_count") == 1
    assert other.get_sample_value("done_total", {"kind": "a", "way": "b"}) is None
    assert other.get_sample_value("here") == other.get_sample_value("took_seconds_count") == 0


def test_histograms_have_upstreams_buckets() -> None:
    (family,) = Second(CollectorRegistry()).took.collect()
    bounds = [one.labels["le"] for one in family.samples if one.name.endswith("_bucket")]
    assert [float(one) for one in bounds] == [*BUCKETS, float("inf")]
