"""What CSI calls see of the volumes: all that was done for them, and what the last look found."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from localvolume.backends.model import Record
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.called import Calls
from localvolume.dynamic.calls import NotNow, Volume
from localvolume.dynamic.pools import Pools
from localvolume.host.process.workers import Workers
from localvolume.volumes.capacity import GIB
from tests.decisions.support_dynamic import facts, pool, record


def called(number: int, **changes: Any) -> Record:
    return record(number, **({"driver": CSI_DRIVER, "request": "something"} | changes))


def there(known: Record) -> Volume:
    return Volume(record=known, pool="fast")


class Role:
    """The calls, and the role's looks at a pool with the given records."""

    def __init__(self) -> None:
        self.calls = Calls(Pools(Workers()), self.wake, {})
        self.records: tuple[Record, ...] = ()
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1
        self.look(*self.records)

    def look(self, *records: Record) -> None:
        self.records = records
        self.calls.looking()
        self.calls.seen(facts(pool(*records)))

    def names(self) -> tuple[list[str], list[str]]:
        """Of the volumes and of the snapshots."""
        both = self.calls.all(), self.calls.snapshots()
        volumes, snapshots = ([one.record.name for one in found] for found in both)
        return volumes, snapshots


@pytest.fixture
def role() -> Role:
    return Role()


ONE, TWO = called(1), called(2)
CUT = called(3, snapshot_of="pvc-1")


async def test_what_was_made_is_there_before_the_next_look(role: Role) -> None:
    role.look(TWO)
    role.calls.answer("pvc-1", there(ONE))
    role.calls.answer("pvc-3", there(CUT))
    assert role.names() == (["pvc-1", "pvc-2"], ["pvc-3"])
    assert await role.calls.find("pvc-1") == there(ONE)
    assert await role.calls.find_snapshot("pvc-3") == there(CUT)
    assert role.woken == 0


async def test_what_was_removed_is_not(role: Role) -> None:
    role.look(ONE, TWO, CUT)
    role.calls.answer("pvc-1", None)
    role.calls.answer("pvc-3", None)
    assert role.names() == (["pvc-2"], [])
    role.records = (TWO,)
    assert await role.calls.find("pvc-1") is None
    assert role.woken == 1


async def test_what_grew_has_its_size(role: Role) -> None:
    role.look(ONE)
    grown = there(replace(ONE, size_bytes=2 * GIB))
    role.calls.answer("pvc-1", grown)
    assert role.calls.all() == [grown]
    assert await role.calls.find("pvc-1") == grown


async def test_a_look_that_had_begun_may_have_missed_it(role: Role) -> None:
    role.look()
    role.calls.looking()
    role.calls.answer("pvc-1", there(ONE))
    role.calls.seen(facts(pool()))
    assert role.names() == (["pvc-1"], [])


async def test_a_look_that_begins_later_says_what_is_there(role: Role) -> None:
    role.look()
    role.calls.answer("pvc-1", there(ONE))
    role.look(TWO)
    assert role.names() == (["pvc-2"], [])


async def test_neither_kind_is_found_as_the_other(role: Role) -> None:
    role.look(ONE, CUT)
    role.calls.answer("pvc-4", there(called(4, snapshot_of="pvc-1")))
    assert role.names() == (["pvc-1"], ["pvc-3", "pvc-4"])
    role.records = (ONE, CUT, called(4, snapshot_of="pvc-1"))
    assert await role.calls.find("pvc-4") is None
    assert await role.calls.find_snapshot("pvc-1") is None


async def test_a_call_that_comes_during_a_look_waits_for_the_next() -> None:
    """It may be about what that does not see: a snapshot of a volume that was just made."""
    calls = Calls(Pools(Workers()), lambda: None, {})
    calls.looking()
    call = asyncio.create_task(calls.snapshot("pvc-3", "pvc-1"))
    await asyncio.sleep(0)
    assert calls.waiting() == []
    calls.looking()
    assert [one.key for one in calls.waiting()] == ["pvc-3"]
    calls.end()
    with pytest.raises(NotNow):
        await call
    assert calls.waiting() == []
