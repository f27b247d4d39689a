"""What is to be judged, now or later: once each, in turn, and as early as anybody asked."""

import asyncio
import time

from localvolume.controller.agenda import Agenda


def taken(agenda: Agenda) -> list[str]:
    found = []
    while (name := agenda.pop()) is not None:
        found.append(name)
    return found


async def test_names_come_once_and_in_the_order_in_which_they_were_asked_for() -> None:
    agenda = Agenda()
    agenda.add(["b", "a"])
    agenda.add(["a", "c", "b"])
    assert len(agenda) == 3
    assert taken(agenda) == ["b", "a", "c"]
    agenda.add(["a"])
    assert taken(agenda) == ["a"]


async def test_waiting_ends_with_the_first_name_and_begins_anew_after_the_last() -> None:
    agenda = Agenda()
    waiting = asyncio.create_task(agenda.wait())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    agenda.add([])
    await asyncio.sleep(0.01)
    assert not waiting.done()
    agenda.add(["a"])
    await asyncio.wait_for(waiting, 5)
    assert taken(agenda) == ["a"]
    waiting = asyncio.create_task(agenda.wait())
    await asyncio.sleep(0.01)
    assert not waiting.done()
    waiting.cancel()


async def test_the_earliest_time_counts() -> None:
    agenda = Agenda()
    began = time.monotonic()
    agenda.later("late", 3600)
    agenda.later("both", 3600)
    agenda.later("both", 0.2)
    agenda.later("both", 1800)
    agenda.later("soon", 0.1)
    await asyncio.wait_for(agenda.wait(), 5)
    first = taken(agenda)
    assert first[0] == "soon"
    if first == ["soon"]:
        await asyncio.wait_for(agenda.wait(), 5)
        assert taken(agenda) == ["both"]
    assert time.monotonic() - began >= 0.2
    agenda.close()


async def test_asking_again_and_again_keeps_nothing() -> None:
    """A volume waits a day, and is looked at every ten seconds."""
    agenda = Agenda()
    for number in range(10_000):
        agenda.later("a", 3600 - number / 1000)
    assert len(agenda._later) < 50
    agenda.close()


async def test_twenty_thousand_are_taken_quickly() -> None:
    agenda = Agenda()
    names = [f"pv-{number}" for number in range(20_000)]
    began = time.monotonic()
    agenda.add(names)
    assert taken(agenda) == names
    # A generous bound: going through what was taken before would take minutes.
    assert time.monotonic() - began < 5
