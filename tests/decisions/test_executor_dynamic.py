"""What of one volume waits after a failure: acts of the same kind alone, and not for the users that
have let go.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from localvolume.backends.model import BackendFailed, Busy, Impossible
from localvolume.dynamic.executor import Executor
from localvolume.dynamic.model import Action, Delete, Facts, Grow, Make, Plan, Publish
from localvolume.dynamic.paces import DynamicPaces
from tests.decisions.support_dynamic import bound, claim, facts, pool, record, volume

HOUR = 3600.0


@dataclass
class Failing:
    """Acts that fail with `error`; what was tried is told by kind."""

    error: Exception
    tried: list[str] = field(default_factory=list)
    said: list[object] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None

    async def do(self, action: Action, _facts: Facts) -> None:
        self.tried.append(type(action).__name__)
        self.meanwhile()
        raise self.error

    def say_failed(self, _claim: Any, reason: str) -> str:
        return reason

    def count_failure(self, _action: Action) -> None: ...

    def say_of_claim(self, *said: object) -> None:
        self.said.append(said[-1])

    def say_of_volume(self, *_: object) -> None: ...


@dataclass
class Ground:
    """What is under way at one volume, and the times that it keeps."""

    acts: Failing
    executor: Executor

    async def begin(self, *actions: Action, busy: Collection[str] = ()) -> list[str]:
        """What all was tried, once nothing is under way."""
        self.executor.begin(Plan(actions), facts(busy=busy))
        while self.executor.busy:
            await asyncio.sleep(0)
        return self.acts.tried


def _ground(error: Exception, *, first: float = HOUR) -> Ground:
    acts = Failing(error)
    paces = DynamicPaces(first_wait=first, longest_wait=HOUR)
    return Ground(acts, Executor(acts, wake=lambda: None, paces=paces))  # type: ignore[arg-type]


def _grow() -> Grow:
    home = pool(record()).config
    more = bound(size="3Gi")
    return Grow(
        key="pvc-1",
        reason="more",
        claim=more,
        volume=volume(),
        pool=home,
        record=record(),
        size_bytes=3 << 30,
    )


async def test_a_growth_that_failed_delays_no_removal() -> None:
    ground = _ground(BackendFailed("it is in use"))
    delete = Delete(key="pvc-1", reason="its claim is gone", volume=volume())
    assert await ground.begin(_grow()) == ["Grow"]
    assert await ground.begin(_grow()) == ["Grow"]
    assert await ground.begin(delete) == ["Grow", "Delete"]
    # Its own failure is waited out, and the other one is still.
    assert await ground.begin(delete) == ["Grow", "Delete"]
    assert await ground.begin(_grow()) == ["Grow", "Delete"]


async def test_what_fails_during_a_look_is_waited_out_after_it() -> None:
    """The look counts it as under way, and so its plan has no action for it."""
    ground = _ground(Impossible("never"))
    assert await ground.begin(_grow()) == ["Grow"]
    assert await ground.begin(busy={"pvc-1"}) == ["Grow"]
    assert await ground.begin(_grow()) == ["Grow"]
    # Once there is nothing to do, nothing is waited for any more.
    assert await ground.begin() == ["Grow"]
    assert await ground.begin(_grow()) == ["Grow", "Grow"]


async def test_to_publish_is_to_make_on() -> None:
    ground = _ground(BackendFailed("not now"))
    home = pool(record()).config
    make = Make(key="pvc-1", reason="room", claim=claim(), pool=home, record=record())
    publish = Publish(
        key="pvc-1", reason="made", claim=claim(), pool=home, pool_id="id", record=record()
    )
    assert await ground.begin(make) == ["Make"]
    assert await ground.begin(publish) == ["Make"]


async def _tries_while_users_change(error: Exception, *, during: bool = False) -> tuple[int, float]:
    """How often a growth was tried, and how long it could be; users change before or during it."""
    ground, began = _ground(error, first=0.01), time.monotonic()
    if during:
        ground.acts.meanwhile = ground.executor.users_changed
    for _ in range(40):
        if not during:
            ground.executor.users_changed()
        await asyncio.sleep(0.011)
        await ground.begin(_grow())
    return len(ground.acts.tried), time.monotonic() - began


@pytest.mark.parametrize("during", [False, True])
async def test_a_growth_waits_no_longer_than_its_volumes_users(during: bool) -> None:
    tries, _ = await _tries_while_users_change(Busy("a pod uses it"), during=during)
    assert tries >= 20


async def test_what_fails_without_users_is_not_tried_for_them() -> None:
    tries, seconds = await _tries_while_users_change(BackendFailed("I/O error"))
    # The waits double from 5 ms on, at the least.
    assert 2 <= tries <= 2 + math.log2(seconds / 0.005 + 1)


async def test_one_fault_is_said_in_the_same_words_each_time() -> None:
    """Else each would be an Event of its own: the seconds until the next attempt are the log's."""
    acts = Failing(BackendFailed("I/O error"))
    for seconds in (10.0, 1000.0):
        paces = DynamicPaces(first_wait=seconds, longest_wait=seconds)
        executor = Executor(acts, wake=lambda: None, paces=paces)  # type: ignore[arg-type]
        await Ground(acts, executor).begin(_grow())
    assert len(acts.said) == 2
    assert set(acts.said) == {"volume pvc-1 cannot grow to 3Gi: I/O error; it is tried again"}
