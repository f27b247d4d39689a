"""Turns: one thing at a time for each volume, deadlines, and calls that hang in the kernel."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from localvolume.flexvolume.turns import Turns
from localvolume.host.process.workers import Hung, Workers
from tests.suite.clock import Clock
from tests.suite.until import until_async

LONG = 120.0
"""Seconds: never over while a test runs, however long its machine stalls."""


@pytest.fixture
def turns() -> Turns:
    return Turns(Workers())


async def test_a_second_call_waits_for_the_first(turns: Turns) -> None:
    order: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def slow(name: str) -> None:
        order.append(f"{name} begins")
        begun.set()
        assert go_on.wait(LONG)
        order.append(f"{name} ends")

    async def act(name: str) -> None:
        async with turns.of("a", LONG) as turn:
            await turn.call(slow, name)

    tasks = [asyncio.create_task(act(name)) for name in ("first", "second")]
    assert await asyncio.to_thread(begun.wait, LONG)
    await asyncio.sleep(0.2)
    assert order == ["first begins"]
    async with turns.of("b", LONG) as turn:
        assert await turn.call(lambda: "other volumes go on") == "other volumes go on"
    go_on.set()
    await asyncio.gather(*tasks)
    assert order == ["first begins", "first ends", "second begins", "second ends"]
    assert not turns._locks, "nothing is kept of volumes that nobody waits for"


async def test_who_waits_too_long_is_told(turns: Turns) -> None:
    async with turns.of("a", LONG):
        began = time.monotonic()
        with pytest.raises(Hung, match="still goes on"):
            async with turns.of("a", 0.2):
                pytest.fail("it is another's turn")
        assert time.monotonic() - began < LONG / 2
    async with turns.of("a", LONG):
        pass


async def test_what_hangs_is_given_up_and_blocks_its_own_volume_alone(turns: Turns) -> None:
    """A call left behind at its deadline still works on the volume: nobody else may."""
    clock = Clock()
    begun, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go_on.wait(LONG)

    async def act() -> None:
        async with turns.of("a", LONG) as turn:
            await turn.call(hang)

    task = asyncio.create_task(act())
    assert await asyncio.to_thread(begun.wait, LONG)
    clock.move_on(LONG)
    with pytest.raises(Hung):
        await task
    async with turns.of("a", LONG) as turn:
        with pytest.raises(Hung, match="still stuck"):
            await turn.call(lambda: None)
    async with turns.of("b", LONG) as turn:
        await turn.call(lambda: None)
    go_on.set()

    async def works() -> bool:
        try:
            async with turns.of("a", LONG) as turn:
                await turn.call(lambda: None)
        except Hung:
            return False
        return True

    await until_async(works)


async def test_the_time_that_was_waited_counts(turns: Turns) -> None:
    async with turns.of("a", 0.3) as turn:
        await asyncio.sleep(0.4)
        with pytest.raises(Hung, match="no time"):
            await turn.call(lambda: None)


async def test_a_cancelled_call_keeps_its_turn_until_it_ends(turns: Turns) -> None:
    began, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def slow() -> None:
        began.set()
        assert go_on.wait(LONG)
        done.append("slow")

    async def act() -> None:
        async with turns.of("a", LONG) as turn:
            await turn.call(slow)

    task = asyncio.create_task(act())
    await asyncio.to_thread(began.wait, LONG)
    task.cancel()
    await asyncio.sleep(0.1)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["slow"]


async def test_where_all_that_runs_is_cancelled_nobody_waits_for_a_call(turns: Turns) -> None:
    """As asyncio does in the end, with whatever is left of an agent."""
    began, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        began.set()
        assert go_on.wait(LONG)

    async def act() -> None:
        async with turns.of("a", LONG) as turn:
            await turn.call(slow)

    task = asyncio.create_task(act())
    await asyncio.to_thread(began.wait, LONG)
    for one in asyncio.all_tasks() - {asyncio.current_task()}:
        one.cancel()
    done, _ = await asyncio.wait({task}, timeout=LONG / 2)
    go_on.set()
    assert done, "it waits for the call"
    assert task.cancelled()


@pytest.mark.parametrize("steps", range(8))
async def test_cancelled_at_any_step_it_ends(turns: Turns, steps: int) -> None:
    """Also where the turn comes in the same moment: an agent that is told to stop must stop."""

    async def act() -> None:
        async with turns.of("a", LONG):
            await asyncio.Event().wait()

    task = asyncio.create_task(act())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=LONG / 2)
    assert done, "it goes on"
    assert task.cancelled()
    assert not turns._locks


async def test_what_a_call_raises_is_raised(turns: Turns) -> None:
    def fails() -> None:
        raise RuntimeError("as it is")

    with pytest.raises(RuntimeError, match="as it is"):
        async with turns.of("a", LONG) as turn:
            await turn.call(fails)
