"""What is to be judged, now or later: once each, in turn, and as early as anybody asked."""

import asyncio
import time

from localvolume.controller.workqueue import WorkQueue


def taken(queue: WorkQueue) -> list[str]:
    found = []
    while (name := queue.pop()) is not None:
        found.append(name)
    return found


async def test_names_come_once_and_in_the_order_in_which_they_were_asked_for() -> None:
    queue = WorkQueue()
    queue.add(["b", "a"])
    queue.add(["a", "c", "b"])
    assert len(queue) == 3
    assert taken(queue) == ["b", "a", "c"]
    queue.add(["a"])
    assert taken(queue) == ["a"]


async def test_waiting_ends_with_the_first_name_and_begins_anew_after_the_last() -> None:
    queue = WorkQueue()
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    queue.add([])
    await asyncio.sleep(0.01)
    assert not waiting.done()
    queue.add(["a"])
    await asyncio.wait_for(waiting, 60)
    assert taken(queue) == ["a"]
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    waiting.cancel()


async def test_the_earliest_time_counts() -> None:
    queue = WorkQueue()
    began = time.monotonic()
    queue.later("late", 3600)
    queue.later("both", 3600)
    queue.later("both", 0.2)
    queue.later("both", 1800)
    queue.later("soon", 0.1)
    await asyncio.wait_for(queue.wait(), 60)
    first = taken(queue)
    assert first[0] == "soon"
    if first == ["soon"]:
        await asyncio.wait_for(queue.wait(), 60)
        assert taken(queue) == ["both"]
    assert time.monotonic() - began >= 0.2
    queue.close()


async def test_asking_again_and_again_keeps_nothing() -> None:
    """A volume waits a day, and is looked at every ten seconds."""
    queue = WorkQueue()
    for number in range(10_000):
        queue.later("a", 3600 - number / 1000)
    assert len(queue._later) < 50
    queue.close()


async def test_twenty_thousand_are_taken_quickly() -> None:
    queue = WorkQueue()
    names = [f"pv-{number}" for number in range(20_000)]
    began = time.monotonic()
    queue.add(names)
    assert taken(queue) == names
    # A generous bound: going through what was taken before would take minutes.
    assert time.monotonic() - began < 30
