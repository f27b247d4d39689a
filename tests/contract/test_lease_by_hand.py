"""A lease that somebody edits or deletes: never two leaders, and soon one again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.contract.support_api import ApiUnderTest
from tests.contract.support_lease import TIMES, Candidate, Seat, unstalled
from tests.suite.until import until_async


@pytest.fixture
def seat(api: ApiUnderTest) -> Seat:
    return Seat(api)


@asynccontextmanager
async def two(seat: Seat, slow_end: float = 0.0) -> AsyncIterator[tuple[Candidate, Candidate]]:
    """One that leads, and one that knows it. Fails if both ever lead."""
    async with (
        unstalled() as clock,
        seat.candidate("one", slow_end=slow_end, clock=clock) as one,
    ):
        await until_async(lambda: one.at_work)
        async with seat.candidate("two", clock=clock) as other:
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


async def test_a_lease_taken_away_stops_the_leader_at_once(seat: Seat) -> None:
    async with two(seat, slow_end=0.2) as (one, other):
        taken = time.monotonic()
        await seat.edit(holderIdentity="nobody you know")
        await until_async(lambda: not one.election.leading)
        # Its proof by the clock would have gone on; it ends because of what it saw.
        assert one.election.holder == "nobody you know"
        await until_async(lambda: not one.at_work)
        # Whoever that is may be at work: the lease is waited for.
        await until_async(lambda: one.at_work or other.at_work)
        assert time.monotonic() - taken > TIMES["lease_seconds"] - 0.1
        assert (await seat.spec())["leaseTransitions"] == 1


async def test_a_deleted_lease_goes_back_to_who_had_it(seat: Seat) -> None:
    """The other one cannot know whether the leader has heard of it."""
    async with two(seat) as (one, other):
        before = (await seat.api.now(seat.path))["metadata"]["uid"]
        assert (await seat.api.delete(seat.path)).status == 200
        await until_async(lambda: one.terms == 2 and one.at_work)
        assert (await seat.api.now(seat.path))["metadata"]["uid"] != before
        assert (await seat.spec())["holderIdentity"] == "one"
        assert other.terms == 0


async def test_a_lease_cleared_by_hand_is_not_a_released_one(seat: Seat) -> None:
    async with two(seat) as (one, other):
        await seat.edit(holderIdentity="")
        await until_async(lambda: one.terms == 2 and one.at_work)
        assert other.terms == 0


async def test_a_leader_named_by_hand_waits_for_the_one_before(seat: Seat) -> None:
    async with two(seat) as (one, other):
        named = time.monotonic()
        await seat.edit(holderIdentity="two")
        await until_async(lambda: not one.election.leading)
        await until_async(lambda: not one.at_work)
        await until_async(lambda: one.at_work or other.at_work)
        assert time.monotonic() - named > TIMES["lease_seconds"] - 0.5


async def test_a_shortened_lease_ends_no_sooner(seat: Seat) -> None:
    """Candidates that believed it would take over while the leader is sure of itself."""
    async with two(seat) as (one, other):
        await seat.edit(leaseDurationSeconds=1)
        await asyncio.sleep(1.5)
        assert (one.terms, one.election.leading, other.terms) == (1, True, 0)
        # It is put right with the next renewal that is done.
        await until_async(seat.spec, lambda spec: spec["leaseDurationSeconds"] == 3)


async def test_labels_and_annotations_disturb_nobody(seat: Seat) -> None:
    async with two(seat) as (one, other):
        for number in range(20):
            meta = {"annotations": {"n": str(number)}, "labels": {"mine": "yes"}}
            assert (await seat.api.patch(seat.path, {"metadata": meta})).status == 200
            await asyncio.sleep(0.05)
        await asyncio.sleep(TIMES["renew_deadline"])
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
    seat: Seat, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "localvolume")
    collection = seat.path.rpartition("/")[0]
    await seat.api.made(collection, {"metadata": {"name": seat.name}, "spec": BROKEN[broken]})
    started = time.monotonic()
    async with seat.candidate("one") as one:
        await until_async(lambda: one.at_work)
        assert time.monotonic() - started > TIMES["lease_seconds"] - 0.1
    assert [record.message for record in caplog.records if "leadership" in record.message] == []
    # A request that a slow machine does not answer in time is told, too, and is not the record's.
    told = [record.message for record in caplog.records if ": cannot " not in record.message]
    assert len(told) == 1
    assert f"lease {seat.api.namespace}/{seat.name}" in told[0]
