"""How many cleanings run at once on one disk, and how long the next attempt waits."""

from __future__ import annotations

import asyncio

import pytest

from localvolume.cleaning.limits import DeviceLimits


class Gate:
    """Cleanings that hold a limit until they are let go, and the order in which they began."""

    def __init__(self, limits: DeviceLimits) -> None:
        self.limits = limits
        self.began: list[str] = []
        self._doors: dict[str, asyncio.Event] = {}

    def start(self, name: str, key: str = "8:0", limit: int | None = None) -> asyncio.Task[None]:
        self._doors[name] = asyncio.Event()
        return asyncio.create_task(self._clean(name, key, limit))

    async def _clean(self, name: str, key: str, limit: int | None) -> None:
        async with self.limits.hold(key, limit):
            self.began.append(name)
            await self._doors[name].wait()

    async def let_go(self, name: str, task: asyncio.Task[None]) -> None:
        self._doors[name].set()
        await task
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_at_a_time_per_disk_in_the_order_of_asking() -> None:
    gate = Gate(DeviceLimits())
    tasks = {name: gate.start(name) for name in "abc"}
    other = gate.start("other disk", key="8:16")
    await settle()
    assert gate.began == ["a", "other disk"]
    await gate.let_go("a", tasks["a"])
    assert gate.began == ["a", "other disk", "b"]
    await gate.let_go("b", tasks["b"])
    assert gate.began[-1] == "c"
    await gate.let_go("c", tasks["c"])
    await gate.let_go("other disk", other)
    assert not gate.limits._devices


async def test_what_runs_already_is_counted_and_never_waits() -> None:
    """A Job that an earlier agent made does not begin only because its place is free."""
    limits = DeviceLimits()
    gate = Gate(limits)
    first, second = gate.start("a"), gate.start("b")
    await settle()
    async with asyncio.timeout(60), limits.hold("8:0", 1, running=True):
        assert gate.began == ["a"]
        await gate.let_go("a", first)
        assert gate.began == ["a"], "one still runs"
    await settle()
    assert gate.began == ["a", "b"]
    await gate.let_go("b", second)
    assert not limits._devices


async def test_a_class_may_allow_more() -> None:
    gate = Gate(DeviceLimits())
    tasks = {name: gate.start(name, limit=2) for name in "abc"}
    await settle()
    assert gate.began == ["a", "b"]
    await gate.let_go("b", tasks["b"])
    assert gate.began == ["a", "b", "c"]
    await gate.let_go("a", tasks["a"])
    await gate.let_go("c", tasks["c"])


async def test_nobody_overtakes_by_a_larger_limit() -> None:
    gate = Gate(DeviceLimits())
    tasks = {"a": gate.start("a"), "b": gate.start("b", limit=1), "c": gate.start("c", limit=9)}
    await settle()
    assert gate.began == ["a"]
    await gate.let_go("a", tasks["a"])
    assert gate.began == ["a", "b", "c"]
    await gate.let_go("b", tasks["b"])
    await gate.let_go("c", tasks["c"])


@pytest.mark.parametrize("cancelled", ["a", "b", "c"])
async def test_a_cancelled_one_gives_its_place_to_the_next(cancelled: str) -> None:
    gate = Gate(DeviceLimits())
    tasks = {name: gate.start(name) for name in "abc"}
    await settle()
    tasks[cancelled].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[cancelled]
    await settle()
    for name in "abc":
        if name != cancelled:
            assert name in gate.began
            await gate.let_go(name, tasks[name])
    assert not gate.limits._devices  # nothing is kept of a disk nobody cleans


async def test_cancelled_in_the_moment_its_turn_came() -> None:
    gate = Gate(DeviceLimits())
    async with gate.limits.hold("8:0"):
        second, third = gate.start("b"), gate.start("c")
        await settle()
    second.cancel()  # b was given its turn just now, and has not run yet
    with pytest.raises(asyncio.CancelledError):
        await second
    await settle()
    assert gate.began == ["c"]
    await gate.let_go("c", third)
    assert not gate.limits._devices


async def test_an_error_in_a_cleaning_gives_its_place_to_the_next() -> None:
    limits = DeviceLimits()
    with pytest.raises(OSError, match="broken"):
        async with limits.hold("8:0"):
            raise OSError("broken")
    async with asyncio.timeout(60), limits.hold("8:0"):
        assert limits._devices["8:0"].running == 1
