"""Leader election: taking, keeping and handing over a lease, whatever becomes of the leader."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from localvolume.kube.election.lease import NotLeading
from tests.contract.support_api import ApiUnderTest, kubectl
from tests.contract.support_lease import LONG, TIMES, Clock, Seat
from tests.suite.until import until_async


@pytest.fixture
def seat(api: ApiUnderTest) -> Seat:
    return Seat(api)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "clock")


async def test_the_first_takes_the_lease_and_renews_it(seat: Seat, clock: Clock) -> None:
    async with seat.candidate("one", clock=clock, **LONG) as one:
        with pytest.raises(NotLeading):
            one.election.check()
        await until_async(lambda: one.at_work)
        one.election.check()
        assert one.election.leading
        assert (one.election.holder, one.election.transitions) == ("one", 0)
        first = await seat.spec()
        assert first["holderIdentity"] == "one"
        assert first["leaseDurationSeconds"] == 600
        assert first["leaseTransitions"] == 0
        # MicroTime, which client-go reads with exactly this layout.
        time.strptime(first["acquireTime"].split(".")[0], "%Y-%m-%dT%H:%M:%S")
        assert len(first["acquireTime"].split(".")[1]) == len("123456Z")
        # Longer than a lease without renewals would last.
        over = clock() + LONG["lease_seconds"]
        while clock() < over:
            await one.renewals(3)
            clock.move_on(LONG["renew_deadline"] / 2)
        later = await seat.spec()
        assert later["renewTime"] > first["renewTime"]
        assert {**later, "renewTime": ""} == {**first, "renewTime": ""}
        assert (one.terms, one.at_work) == (1, True)


@pytest.mark.needs("kubectl")
async def test_kubectl_shows_who_leads(seat: Seat) -> None:
    async with seat.candidate("one") as one:
        await until_async(lambda: one.at_work)
        out = await kubectl(seat.api, "get", "lease", seat.name, "-n", seat.api.namespace)
    assert out.splitlines()[1].split()[:2] == [seat.name, "one"]


async def test_a_released_lease_is_taken_at_once(seat: Seat) -> None:
    async with (
        seat.candidate("one", slow_end=0.3, **LONG) as one,
        seat.candidate("two", **LONG) as two,
    ):
        await until_async(lambda: one.at_work or two.at_work)
        leader, other = (one, two) if one.at_work else (two, one)
        await until_async(lambda: other.election.holder == leader.election.identity)
        assert not other.election.leading
        before = leader.election.transitions
        stopping = asyncio.create_task(leader.stop())
        started = time.monotonic()
        while not other.at_work:
            assert not (leader.election.leading and other.election.leading)
            assert time.monotonic() < started + LONG["lease_seconds"] / 2, "waited for the expiry"
            await asyncio.sleep(0.001)
        # Not before the first one's work had ended to its last instruction.
        assert not leader.at_work
        assert other.election.transitions == before + 1
        await stopping


async def test_the_last_one_leaves_the_lease_free(seat: Seat) -> None:
    async with seat.candidate("one", **LONG) as one:
        await until_async(lambda: one.at_work)
        await one.stop()
        assert not one.election.leading
        assert (one.at_work, one.election.holder) == (False, "")
    spec = await seat.spec()
    # As client-go leaves it.
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("", 1)


async def test_a_killed_leader_is_followed_when_its_lease_is_over(
    seat: Seat, tmp_path: Path, clock: Clock
) -> None:
    async with seat.program("doomed", Clock(tmp_path / "another")) as doomed:
        await doomed.says("elected")
        async with seat.candidate("next", clock=clock, **LONG) as follower:
            await until_async(lambda: follower.election.holder == "doomed")
            clock.move_on(LONG["lease_seconds"] / 2)
            await follower.renewals(1)
            doomed.signal(signal.SIGKILL)
            await doomed.process.wait()
            # It was renewed since, and the follower waits from when it has seen the last of that.
            last = (await seat.spec())["renewTime"]
            await until_async(lambda: follower.renewed == last)
            clock.move_on(LONG["lease_seconds"] * 0.75)
            await asyncio.sleep(4 * TIMES["retry_seconds"])
            assert not follower.at_work
            clock.move_on(LONG["lease_seconds"] / 4)
            await until_async(lambda: follower.at_work)
            assert (follower.election.holder, follower.election.transitions) == ("next", 1)


async def test_a_leader_that_was_paused_finds_out_before_it_writes(
    seat: Seat, tmp_path: Path, clock: Clock
) -> None:
    api, others = seat.api, Clock(tmp_path / "others")
    shared = f"{api.config_maps}/{seat.name}"
    await api.made(api.config_maps, {"metadata": {"name": seat.name}})
    async with seat.program("paused", clock) as paused:
        await paused.says("elected")
        await paused.order("write")
        await paused.says("wrote")
        assert (await api.now(shared))["data"] == {"by": "paused"}
        await paused.order("stop")
        await paused.stopped()
        async with seat.candidate("next", clock=others, **LONG) as follower:
            await until_async(lambda: follower.election.holder == "paused")
            others.move_on(LONG["lease_seconds"])
            await until_async(lambda: follower.at_work)
            await api.patch(shared, {"data": {"by": "next"}})
            # What is left of its proof then goes by while it is stopped.
            clock.move_on(LONG["renew_deadline"] - 1)
            await asyncio.sleep(1.5)
            paused.signal(signal.SIGCONT)
            await paused.says("lost")
            await paused.says("refused")
            await paused.says("ended")
            assert (await api.now(shared))["data"] == {"by": "next"}
            assert (follower.at_work, follower.terms) == (True, 1)
        # It stands again, as if nothing had been.
        await paused.says("elected")
        await paused.order("write")
        await paused.says("wrote")


async def test_a_leader_that_was_paused_for_a_moment_goes_on(seat: Seat, clock: Clock) -> None:
    await seat.api.made(seat.api.config_maps, {"metadata": {"name": seat.name}})
    async with seat.program("paused", clock) as paused:
        await paused.says("elected")
        await paused.order("stop")
        await paused.stopped()
        paused.signal(signal.SIGCONT)
        await paused.says("leading")
        await paused.says("wrote")


async def test_of_ten_at_most_one_ever_leads(seat: Seat) -> None:
    """With clean ends of leaders, from the first race on until nobody is left."""
    async with AsyncExitStack() as stack:
        many = [
            await stack.enter_async_context(seat.candidate(f"c{number}", **LONG))
            for number in range(10)
        ]
        led: list[str] = []

        def leaders() -> list[str]:
            now = [one.election.identity for one in many if one.election.leading]
            assert len(now) <= 1, now
            working = [one.election.identity for one in many if one.at_work]
            assert len(working) <= 1, working
            return working if working == now else []

        for _ in many:
            now = await until_async(leaders, every=0.001)
            led += now
            (leader,) = (one for one in many if one.election.identity == now[0])
            stopping = asyncio.create_task(leader.stop())
            while not stopping.done():
                leaders()
                await asyncio.sleep(0.001)
    assert sorted(led) == sorted(one.election.identity for one in many)
    assert (await seat.spec())["leaseTransitions"] == 9


async def test_an_earlier_life_of_the_same_name_is_followed_at_once(
    seat: Seat, clock: Clock
) -> None:
    """As in client-go; identities are meant to be unique."""
    async with seat.program("same", clock) as earlier:
        await earlier.says("elected")
        earlier.signal(signal.SIGKILL)
        await earlier.process.wait()
    before = await seat.spec()
    async with seat.candidate("same", **LONG) as later:
        await until_async(lambda: later.at_work)
        after = await seat.spec()
    assert after["acquireTime"] == before["acquireTime"]
    assert after["leaseTransitions"] == before["leaseTransitions"] == 0


async def test_work_that_fails_gives_the_lease_back_and_is_told(seat: Seat) -> None:
    async def fail() -> None:
        raise LookupError("broken")

    async with seat.candidate("one", lead=fail, **LONG) as one:
        with pytest.raises(LookupError, match="broken"):
            await asyncio.wait_for(one.task, 60)
        assert not one.election.leading
    assert (await seat.spec())["holderIdentity"] == ""


async def test_work_that_returns_ends_the_candidacy(seat: Seat) -> None:
    async def done() -> None:
        pass

    async with seat.candidate("one", lead=done, **LONG) as one:
        await asyncio.wait_for(one.task, 60)
    assert (await seat.spec())["holderIdentity"] == ""
