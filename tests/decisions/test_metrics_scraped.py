"""A scrape is answered by a thread of its own: between any two lines of what tells of a look, it
finds what was there before and is there afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import localvolume
from localvolume.controller.metrics import ControllerMetrics
from localvolume.controller.model import Report
from localvolume.dynamic.metrics import DynamicMetrics
from localvolume.dynamic.plan.orphans import Orphan
from localvolume.health.metrics import HealthMetrics
from localvolume.health.model import Filled
from localvolume.kube.objects import PersistentVolume
from localvolume.static.metrics import StaticMetrics
from tests.decisions.support_controller import volume
from tests.decisions.support_dynamic import lvm_pool, pool, record

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""What a scrape found of gauges, by their names and labels."""

OURS = str(Path(localvolume.__file__).parent)


def scraped(registry: CollectorRegistry) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in registry.collect()
        if family.name.startswith("localvolume_") and family.type == "gauge"
        for sample in family.samples
        if sample.value
    }


def scraped_at_each_line(registry: CollectorRegistry, told: Callable[[], object]) -> list[Samples]:
    """What scrapes find that come at each line of ours while `told` runs."""
    found: list[Samples] = []

    def at(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            sys.settrace(None)
            found.append(scraped(registry))
            sys.settrace(at)
        return at

    before = sys.gettrace()
    sys.settrace(at)
    try:
        told()
    finally:
        sys.settrace(before)
    return found


def dynamic(registry: CollectorRegistry) -> Callable[[], object]:
    metrics = DynamicMetrics(registry)
    pools = [pool(record(1), record(2), name="fast"), lvm_pool(name="thin")]
    orphans = [Orphan("fast", "nobody-s")]
    return lambda: metrics.tell(pools, orphans, [])


def health(registry: CollectorRegistry) -> Callable[[], object]:
    metrics = HealthMetrics(registry)
    full = Filled(used_bytes=9, available_bytes=1, used_inodes=2, available_inodes=8)
    return lambda: metrics.tell([(volume(), "NotMounted")], [(volume(), full)], 1, 0.5)


def static(registry: CollectorRegistry) -> Callable[[], object]:
    metrics = StaticMetrics(registry)
    return lambda: metrics.tell([volume()], [])


@pytest.mark.parametrize("teller", [dynamic, health, static])
def test_nothing_is_missing_in_between(
    teller: Callable[[CollectorRegistry], Callable[[], object]],
) -> None:
    registry = CollectorRegistry()
    tell = teller(registry)
    tell()
    there = scraped(registry)
    assert there
    found = scraped_at_each_line(registry, tell)
    assert len(found) > 5
    assert all(one == there for one in found)


def test_a_lost_volume_is_never_missing_in_between() -> None:
    metrics = ControllerMetrics()
    lost = Report(volume(), "its node is gone")

    def tell() -> None:
        assert metrics.judged("pv-1", lost)

    tell()
    there = scraped(metrics.registry)
    found = scraped_at_each_line(metrics.registry, tell)
    assert len(found) > 3
    assert all(one == there for one in found)


def test_what_is_gone_is_shown_no_longer() -> None:
    registry = CollectorRegistry()
    metrics = HealthMetrics(registry)
    one: PersistentVolume = volume()
    metrics.tell([(one, "NotMounted")], [(one, Filled(used_bytes=9, available_bytes=1))], 0, 0.5)
    assert "localvolume_prepared_used_bytes" in str(scraped(registry))
    metrics.tell([(one, "Missing")], [], 0, 0.5)
    assert "localvolume_prepared_used_bytes" not in str(scraped(registry))
    (labels,) = (dict(labels) for name, labels in scraped(registry) if name.endswith("unhealthy"))
    assert labels["reason"] == "Missing"
