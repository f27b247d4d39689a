"""A lease that somebody edits or deletes: never two leaders, and soon one again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.support_api import ApiUnderTest
from tests.contract.support_lease import LONG, TIMES, Candidate, Clock, Seat
from tests.suite.until import until_async


@pytest.fixture
def seat(api: ApiUnderTest) -> Seat:
    return Seat(api)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "clock")


@asynccontextmanager
async def two(
    seat: Seat, clock: Clock, slow_end: float = 0.0
) -> AsyncIterator[tuple[Candidate, Candidate]]:
    """One that leads, and one that knows it. Fails if both ever lead."""
    async with seat.candidate("one", slow_end=slow_end, clock=clock, **LONG) as one:
        await until_async(lambda: one.at_work)
        async with seat.candidate("two", clock=clock, **LONG) as other:
            await until_async(lambda: other.election.holder == "one")

            async def watch() -> None:
                while True:
                    assert not (one.election.leading and other.election.leading)
                    await asyncio.sleep(0.001)

            watching = asyncio.create_task(watch())
            try:
                yield one, other
                assert not watching.done(), watching
            finally:
                watching.cancel()


async def waited_for(clock: Clock, *candidates: Candidate) -> None:
    """One of them leads when the lease that they have just seen is over, and none before."""
    clock.move_on(LONG["lease_seconds"] / 2)
    await asyncio.sleep(4 * TIMES["retry_seconds"])
    assert not any(one.at_work for one in candidates)
    clock.move_on(LONG["lease_seconds"] / 2)
    await until_async(lambda: any(one.at_work for one in candidates))


async def test_a_lease_taken_away_stops_the_leader_at_once(seat: Seat, clock: Clock) -> None:
    async with two(seat, clock, slow_end=0.2) as (one, other):
        await seat.edit(holderIdentity="nobody you know")
        await until_async(lambda: not one.election.leading)
        # Its proof by the clock would have gone on; it ends because of what it saw.
        assert one.election.holder == "nobody you know"
        await until_async(lambda: not one.at_work)
        # Whoever that is may be at work: the lease is waited for.
        await waited_for(clock, one, other)
        assert (await seat.spec())["leaseTransitions"] == 1


async def test_a_deleted_lease_goes_back_to_who_had_it(seat: Seat, clock: Clock) -> None:
    """The other one cannot know whether the leader has heard of it."""
    async with two(seat, clock) as (one, other):
        before = (await seat.api.now(seat.path))["metadata"]["uid"]
        assert (await seat.api.delete(seat.path)).status == 200
        await until_async(lambda: one.terms == 2 and one.at_work)
        assert (await seat.api.now(seat.path))["metadata"]["uid"] != before
        assert (await seat.spec())["holderIdentity"] == "one"
        assert other.terms == 0


async def test_a_lease_cleared_by_hand_is_not_a_released_one(seat: Seat, clock: Clock) -> None:
    async with two(seat, clock) as (one, other):
        await seat.edit(holderIdentity="")
        await until_async(lambda: one.terms == 2 and one.at_work)
        assert other.terms == 0


async def test_a_leader_named_by_hand_waits_for_the_one_before(seat: Seat, clock: Clock) -> None:
    async with two(seat, clock) as (one, other):
        await seat.edit(holderIdentity="two")
        await until_async(lambda: not one.election.leading)
        await until_async(lambda: not one.at_work)
        await waited_for(clock, one, other)


async def test_a_shortened_lease_ends_no_sooner(seat: Seat, clock: Clock) -> None:
    """Candidates that believed it would take over while the leader is sure of itself."""
    async with two(seat, clock) as (one, other):
        await seat.edit(leaseDurationSeconds=1)
        await asyncio.sleep(1.5)
        assert (one.terms, one.election.leading, other.terms) == (1, True, 0)
        # It is put right with the next renewal that is done.
        await until_async(seat.spec, lambda spec: spec["leaseDurationSeconds"] == 600)


async def test_labels_and_annotations_disturb_nobody(seat: Seat, clock: Clock) -> None:
    async with two(seat, clock) as (one, other):
        for number in range(20):
            meta = {"annotations": {"n": str(number)}, "labels": {"mine": "yes"}}
            assert (await seat.api.patch(seat.path, {"metadata": meta})).status == 200
            await asyncio.sleep(0.05)
        # Longer than its last renewal before that would prove anything.
        for _ in range(3):
            await one.renewals(3)
            clock.move_on(LONG["renew_deadline"] / 2)
        assert (one.terms, one.election.leading, other.terms) == (1, True, 0)
        assert (await seat.api.now(seat.path))["metadata"]["labels"] == {"mine": "yes"}


BROKEN = {
    "empty": {},
    "without times": {"holderIdentity": "ghost"},
    "with a short lease": {"holderIdentity": "ghost", "leaseDurationSeconds": 1},
    "with the most transitions": {
        "holderIdentity": "ghost",
        "leaseDurationSeconds": 3,
        "leaseTransitions": 2**31 - 1,
    },
}


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_broken_record_is_waited_for_and_told_once(
    seat: Seat, clock: Clock, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "localvolume")
    collection = seat.path.rpartition("/")[0]
    await seat.api.made(collection, {"metadata": {"name": seat.name}, "spec": BROKEN[broken]})
    async with seat.candidate("one", clock=clock, **LONG) as one:
        await until_async(lambda: one.election._lock.view)
        await waited_for(clock, one)
    assert [record.message for record in caplog.records if "leadership" in record.message] == []
    # A request that a slow machine does not answer in time is told, too, and is not the record's.
    told = [record.message for record in caplog.records if ": cannot " not in record.message]
    assert len(told) == 1
    assert f"lease {seat.api.namespace}/{seat.name}" in told[0]
