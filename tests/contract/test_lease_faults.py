"""Candidates for a lease against a server that is away, refuses, lies low or loses answers."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from localvolume.kube.client import Client, MergePatch
from localvolume.kube.election.lease import NotLeading, new_identity
from localvolume.kube.errors import ApiError
from localvolume.kube.kinds import LEASES
from localvolume_lab.sandbox import Sandbox
from localvolume_lab.sandbox.http.faults import Fault, Verb
from tests.contract.support_lease import LONG, TIMES, Candidate, Clock, unstalled
from tests.suite.chance import SEED, rounds
from tests.suite.until import until_async

NAME = "seat"


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(controllers=False) as running:
        yield running


@pytest.fixture
def candidate(sandbox: Sandbox, tmp_path: Path) -> Callable[..., Candidate]:
    kubeconfig = sandbox.kubeconfig(tmp_path / "kubeconfig")

    def make(identity: str, **options: Any) -> Candidate:
        return Candidate(kubeconfig, "default", NAME, identity, **options)

    return make


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the election warned of; the informer speaks for itself."""
    return [
        record.message
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name.startswith("localvolume.kube.election")
    ]


async def test_without_the_server_leadership_ends_with_its_proof(
    sandbox: Sandbox,
    candidate: Callable[..., Candidate],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    clock = Clock(tmp_path / "clock")
    async with candidate("one", clock=clock, **LONG) as one:
        await until_async(lambda: one.at_work)
        away = sandbox.faults.drop(times=None)
        clock.move_on(LONG["renew_deadline"] - 100)
        tried = away.hits
        await until_async(lambda: away.hits > tried + 2)
        one.election.check()
        clock.move_on(100)
        assert not one.election.leading
        await until_async(lambda: not one.at_work)
        with pytest.raises(NotLeading, match="last seen: held by one"):
            one.election.check()
        before = len(sandbox.requests)
        await asyncio.sleep(2)
        # Three ways (watch, read, write), each tried again no more often than it should.
        assert len(sandbox.requests) - before < 60
        sandbox.faults.clear()
        await until_async(lambda: one.at_work)
        assert one.terms == 2
    said = warnings(caplog)
    assert [line for line in said if "cannot write it" in line], said
    # On a busy machine an attempt may end with its time, and not with the connection.
    assert all(line != following for line, following in itertools.pairwise(said)), said


async def test_a_server_that_says_nothing_is_no_proof(
    sandbox: Sandbox, candidate: Callable[..., Candidate]
) -> None:
    async with unstalled() as clock, candidate("one", clock=clock) as one:
        await until_async(lambda: one.at_work)
        sandbox.faults.delay(60, times=None)
        away = clock()
        await until_async(lambda: not one.at_work)
        assert clock() - away < TIMES["lease_seconds"]
        await asyncio.sleep(TIMES["retry_seconds"])
        # Nor does a request that hangs hold up those that would not.
        sandbox.faults.clear()
        await until_async(lambda: one.at_work)


async def test_a_short_absence_is_no_matter(
    sandbox: Sandbox, candidate: Callable[..., Candidate]
) -> None:
    times = {"lease_seconds": 6.0, "renew_deadline": 4.0}
    async with unstalled() as clock, candidate("one", clock=clock, **times) as one:
        await until_async(lambda: one.at_work)
        sandbox.faults.drop(times=None)
        away = clock()
        await until_async(lambda: clock() > away + 1.0)
        sandbox.faults.clear()
        # Longer than the proof from before it lasts.
        await until_async(lambda: clock() > away + 5.0)
        assert (one.terms, one.at_work, one.election.leading) == (1, True, True)


@pytest.mark.parametrize("verb", ["create", "patch", "get", "list", "watch"])
async def test_what_rbac_refuses_is_told_once(
    sandbox: Sandbox,
    candidate: Callable[..., Candidate],
    caplog: pytest.LogCaptureFixture,
    verb: Verb,
) -> None:
    caplog.set_level(logging.INFO, "localvolume")
    rule = sandbox.faults.answer(403, verb=verb, resource="leases", times=None)

    def refused() -> list[str]:
        return [said for said in warnings(caplog) if " it: ordered" in said]

    # Whoever may not renew loses it soon; else nothing is late, and told as that.
    times = {} if verb == "patch" else LONG
    async with candidate("one", **times) as one, candidate("two", **times) as two:
        if verb in ("create", "get"):
            await until_async(lambda: rule.hits > 6 and len(refused()) >= 2)
            assert not one.election.leading
            assert not two.election.leading
            assert len(refused()) == 2
            sandbox.faults.clear()
        await until_async(lambda: one.at_work or two.at_work)
        if verb == "patch":
            leader = one if one.at_work else two
            await until_async(lambda: not leader.at_work)
            sandbox.faults.clear()
            await until_async(lambda: one.at_work or two.at_work)
        # Without a watch, the other one sees the end of the lease by reading.
        leader, other = (one, two) if one.at_work else (two, one)
        await leader.stop()
        await until_async(lambda: other.at_work)


async def test_answers_that_were_lost_cost_no_leadership(
    sandbox: Sandbox, candidate: Callable[..., Candidate]
) -> None:
    """The write was done: the next one finds another resourceVersion, and must find out why."""

    def lose_one() -> Fault:
        return sandbox.faults.lose(verb="patch", resource="leases")

    times = {"lease_seconds": 60.0, "renew_deadline": 40.0}
    sandbox.faults.lose(verb="create", resource="leases")
    async with candidate("one", **times) as one:
        await until_async(lambda: one.at_work)
        assert one.election.transitions == 0
        for _ in range(3):
            await asyncio.wait_for(lose_one().hit.wait(), 60)
        await asyncio.sleep(2 * TIMES["retry_seconds"])
        assert (one.terms, one.election.leading) == (1, True)
        await asyncio.wait_for(lose_one().hit.wait(), 60)
        await one.stop()
        async with candidate("two", **times) as two:
            async with asyncio.timeout(times["lease_seconds"] / 2):
                await until_async(lambda: two.at_work)


async def test_a_lease_taken_in_the_last_moment_is_released_too(
    sandbox: Sandbox, candidate: Callable[..., Candidate]
) -> None:
    """It looks before it leaves: the answer was not there yet, the lease is."""
    sandbox.faults.silence_watch(times=None)
    late = sandbox.faults.lose(verb="create", resource="leases")
    async with candidate("one", **LONG) as one:
        await asyncio.wait_for(late.hit.wait(), 60)
        await one.stop()
        assert one.terms == 0
        left = await one.client.get(LEASES, NAME, "default")
        assert left.spec.holder_identity == ""


async def test_a_watch_that_says_nothing_does_not_hide_a_release(
    sandbox: Sandbox, candidate: Callable[..., Candidate]
) -> None:
    sandbox.faults.silence_watch(resource="leases", times=None)
    times = {"lease_seconds": 60.0, "renew_deadline": 40.0}
    async with candidate("one", **times) as one:
        await until_async(lambda: one.at_work)
        async with candidate("two", **times) as two:
            await until_async(lambda: two.election.holder == "one")
            await one.stop()
            async with asyncio.timeout(times["lease_seconds"] / 2):
                await until_async(lambda: two.at_work)


async def test_a_second_process_of_the_same_identity_does_not_share_the_lease(
    sandbox: Sandbox, candidate: Callable[..., Candidate], caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake. The later one wins, as in client-go; the other one sees that and stops."""
    async with unstalled() as clock, candidate("same", clock=clock) as one:
        await until_async(lambda: one.at_work)
        # Renewed between the later one's look and its write, the lease would be waited for.
        renewal = sandbox.faults.delay(60, verb="patch", resource="leases")
        await asyncio.wait_for(renewal.hit.wait(), 60)
        async with candidate("same", clock=clock) as two:
            await until_async(lambda: two.at_work)
            await until_async(lambda: not one.at_work)
            await asyncio.sleep(TIMES["lease_seconds"] + 0.5)
            assert (one.terms, one.election.leading, two.election.leading) == (1, False, True)
    assert len([said for said in warnings(caplog) if "somebody else wrote our" in said]) == 1


async def test_being_deposed_is_not_a_failure_of_the_work(
    sandbox: Sandbox, candidate: Callable[..., Candidate]
) -> None:
    """Tasks that meet `check` before `lead` is cancelled."""

    async def work() -> None:
        async def write() -> None:
            while True:
                one.election.check()
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            group.create_task(write())

    async with candidate("one", lead=work) as one:
        await until_async(lambda: one.at_work)
        sandbox.faults.drop(times=None)
        await until_async(lambda: not one.at_work)
        before = one.terms
        sandbox.faults.clear()
        await until_async(lambda: one.terms > before and one.at_work)


async def test_leadership_is_a_matter_of_the_clock_alone(
    sandbox: Sandbox, candidate: Callable[..., Candidate]
) -> None:
    """No task of ours has run since the time jumped. What has lapsed stays so for its term."""
    jump = 0.0

    def clock() -> float:
        return time.monotonic() + jump

    # Long enough that no busy machine makes a proof lapse by itself.
    times = {"lease_seconds": 60.0, "renew_deadline": 40.0, "retry_seconds": 1.0}
    async with candidate("one", clock=clock, slow_end=1.0, **times) as one:
        await until_async(lambda: one.at_work)
        # A renewal that will still be done, as nobody took the lease.
        under_way = sandbox.faults.delay(0.3, verb="patch", resource="leases")
        await asyncio.wait_for(under_way.hit.wait(), 60)
        one.election.check()
        # The proof before that one is over, that one's own would not be.
        jump = times["renew_deadline"] - 0.8
        assert not one.election.leading
        with pytest.raises(NotLeading):
            one.election.check()
        while one.at_work:
            assert not one.election.leading
            await asyncio.sleep(0)
        await until_async(lambda: one.terms == 2)


async def test_a_renewal_proves_from_when_it_was_sent(
    sandbox: Sandbox, candidate: Callable[..., Candidate]
) -> None:
    """However long its answer takes: the others may have seen it at once."""
    jump = 0.0

    def clock() -> float:
        return time.monotonic() + jump

    async with candidate("one", clock=clock) as one:
        await until_async(lambda: one.at_work)
        late = sandbox.faults.delay(0.2, verb="patch", resource="leases")
        no_more = sandbox.faults.add(Fault("drop", "patch", "leases", left=None, skip=1))
        await asyncio.wait_for(late.hit.wait(), 60)
        jump += TIMES["renew_deadline"] * 0.75
        await asyncio.wait_for(no_more.hit.wait(), 60)
        jump += TIMES["renew_deadline"] * 0.3
        assert not one.election.leading


Act = Callable[[], Any]


async def test_whatever_happens_no_two_lead(
    sandbox: Sandbox, candidate: Callable[..., Candidate]
) -> None:
    def each_once(chance: random.Random, acts: list[Act]) -> Iterable[Act]:
        return chance.sample(acts, len(acts))

    await fight(sandbox, candidate, each_once)


@pytest.mark.soak
async def test_whatever_happens_for_long_no_two_lead(
    sandbox: Sandbox, candidate: Callable[..., Candidate]
) -> None:
    def drawn(chance: random.Random, acts: list[Act]) -> Iterable[Act]:
        return (chance.choice(acts) for _ in rounds())

    await fight(sandbox, candidate, drawn)


async def fight(
    sandbox: Sandbox,
    candidate: Callable[..., Candidate],
    choose: Callable[[random.Random, list[Act]], Iterable[Act]],
) -> None:
    """Four candidates, and faults, ends, and hands on the lease, one after the other."""
    print("seed", SEED)
    chance = random.Random(SEED)
    times = {"lease_seconds": 1.5, "renew_deadline": 1.0, "retry_seconds": 0.15}
    faults = sandbox.faults
    leaders: set[str] = set()
    async with AsyncExitStack() as stack:
        many = [
            await stack.enter_async_context(candidate(f"c{number}", **times)) for number in range(4)
        ]
        hand = await stack.enter_async_context(Client(many[0].client.access, user_agent="hand"))

        async def watch() -> None:
            while True:
                now = [one.election.identity for one in many if one.election.leading]
                assert len(now) <= 1, now
                leaders.update(now)
                await asyncio.sleep(0.0005)

        async def edit(**spec: Any) -> None:
            with suppress(ApiError):
                await hand.patch(LEASES, NAME, MergePatch({"spec": spec}), "default")

        async def delete() -> None:
            with suppress(ApiError):
                lease = await hand.get(LEASES, NAME, "default")
                await hand.delete(LEASES, NAME, "default", uid=lease.metadata.uid)

        async def restart() -> None:
            leader = next((one for one in many if one.at_work), None)
            if leader is not None:
                await leader.stop()
                leader.begin_again()

        def outage() -> None:
            faults.drop(times=None)

        acts: list[Act] = [
            restart,
            restart,
            delete,
            outage,
            sandbox.compact,
            lambda: edit(holderIdentity=chance.choice(["", "ghost", "c1", "c2"])),
            lambda: edit(leaseDurationSeconds=1, renewTime=None),
            lambda: faults.lose(verb="patch", resource="leases", times=3),
            lambda: faults.answer(409, verb="patch", resource="leases", times=3),
            lambda: faults.answer(500, resource="leases", times=5),
            lambda: faults.delay(0.7, verb="patch", resource="leases", times=4),
            lambda: faults.silence_watch(resource="leases", times=4),
            lambda: faults.cut_watch(resource="leases", times=4),
        ]
        watching = asyncio.create_task(watch())
        try:
            for act in choose(chance, acts):
                await asyncio.sleep(chance.uniform(0, 0.8))
                done = act()
                if asyncio.iscoroutine(done):
                    await done
                await asyncio.sleep(chance.choice([0, 0.2, 1.2]))
                faults.clear()
                assert not watching.done(), (SEED, watching)
            # And once it is well again, somebody leads.
            await until_async(lambda: sum(one.at_work for one in many) == 1)
            assert not watching.done(), (SEED, watching)
        finally:
            watching.cancel()
    assert leaders


@pytest.mark.parametrize(
    ("lease", "deadline", "retry"),
    [(15, 15, 2), (10, 15, 2), (15, 10, 9), (15, 10, 0), (1, 0.5, 0.1), (7200, 10, 2)],
)
async def test_times_that_cannot_work_are_refused(
    candidate: Callable[..., Candidate], lease: float, deadline: float, retry: float
) -> None:
    with pytest.raises(ValueError, match="a lease of"):
        candidate("one", lease_seconds=lease, renew_deadline=deadline, retry_seconds=retry)


async def test_a_candidate_needs_an_identity_of_its_own(
    candidate: Callable[..., Candidate],
) -> None:
    with pytest.raises(ValueError, match="identity"):
        candidate("")
    assert len({new_identity() for _ in range(100)}) == 100
