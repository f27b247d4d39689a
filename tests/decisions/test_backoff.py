"""How long is waited after each failure: twice as long as before, up to a bound, by chance."""

from __future__ import annotations

import random

import pytest

from localvolume.kube import events
from localvolume.kube.backoff import Backoff
from localvolume.static.paces import StaticPaces


def test_backoff_doubles_to_its_bound_and_starts_again() -> None:
    bounds: list[float] = []

    def uniform(low: float, high: float) -> float:
        assert low == 0
        bounds.append(high)
        return high

    backoff = Backoff(first=0.5, longest=30, uniform=uniform)
    assert [backoff.next() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert backoff.next(at_least=5) == 35
    backoff.reset()
    assert backoff.next() == 0.5


@pytest.mark.parametrize(("chance", "part"), [(0.0, 0.5), (1.0, 1.0)])
def test_a_disk_is_left_in_peace_for_half_of_each_wait_and_10_minutes_at_most(
    chance: float, part: float
) -> None:
    def uniform(low: float, high: float) -> float:
        return low + chance * (high - low)

    paces = StaticPaces()
    backoff = Backoff(paces.first_wait, paces.longest_wait, spread=0.5, uniform=uniform)
    waits = [5, 10, 20, 40, 80, 160, 320, 600, 600]
    assert [backoff.next() for _ in waits] == [part * wait for wait in waits]


def test_an_outage_of_a_minute_costs_no_event_however_short_the_waits_are_by_chance() -> None:
    for seed in range(1000):
        backoff = Backoff(first=1.0, uniform=random.Random(seed).uniform)
        assert sum(backoff.next() for _ in range(events.ATTEMPTS)) > 120
