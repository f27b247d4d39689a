"""What is under way: so many at a time, each object once, failures waited out, none forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from localvolume.controller.executor import SETTLE_SECONDS, Executor
from localvolume.controller.workqueue import WorkQueue
from localvolume.kube.errors import LookAgain, TellTheAdministrator, TryAgainLater
from tests.suite.until import until_async


@dataclass(frozen=True)
class One:
    name: str
    version: str = "1"


class Other(One):
    pass


class Judge:
    """Asks for an action about each name in the queue, until nothing is to be done about it."""

    def __init__(
        self,
        do: Callable[[One], Awaitable[None]],
        *,
        at_a_time: int = 4,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self.queue = WorkQueue()
        self.actions: dict[str, One] = {}
        self.executor = Executor[One](
            do,
            self.queue,
            at_a_time=at_a_time,
            state_of=lambda action: action.version,
            settle_seconds=settle_seconds,
        )

    async def run(self) -> None:
        while True:
            await self.queue.wait()
            while (name := self.queue.pop()) is not None:
                action = self.actions.get(name)
                if action is None:
                    self.executor.forget(name)
                else:
                    self.executor.begin(name, action)

    async def until_idle(self, seconds: float = 90.0) -> None:
        running = asyncio.create_task(self.run())
        try:
            await until_async(lambda: self.actions, lambda actions: not actions, seconds=seconds)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            self.queue.close()
            await self.executor.stop()


async def test_so_many_at_a_time_and_none_is_left() -> None:
    now, most, done = 0, 0, Counter[str]()

    async def do(action: One) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        done[action.name] += 1
        judge.actions.pop(action.name)

    judge = Judge(do)
    judge.actions = {f"x/{n}": One(f"x/{n}") for n in range(100)}
    judge.queue.add(judge.actions)
    await judge.until_idle()
    assert most == 4
    assert set(done.values()) == {1}
    assert len(done) == 100


async def test_one_that_has_waited_for_nothing_wakes_the_next() -> None:
    """What is woken may have come to nothing meanwhile: its place is not lost with it."""
    done = []

    async def do(action: One) -> None:
        done.append(action.name)
        judge.actions.pop(action.name)
        if action.name == "a":
            await asyncio.sleep(0.05)
            for name in "bc":
                del judge.actions[name]

    judge = Judge(do, at_a_time=1)
    judge.actions = {name: One(name) for name in "abcde"}
    judge.queue.add(judge.actions)
    await judge.until_idle()
    assert done == ["a", "d", "e"]


async def test_one_that_began_before_its_turn_wakes_the_next_when_it_fails() -> None:
    """It waited for a place, and was judged for another reason when there was one."""
    done = []

    async def do(action: One) -> None:
        done.append(action.name)
        if action.name == "a":
            # Judged before the one whose turn it is.
            judge.queue.add(["c"])
        if action.name == "c":
            raise TryAgainLater("failed", after=60.0)
        if action.name == "b":
            judge.actions.clear()

    judge = Judge(do, at_a_time=1)
    judge.actions = {name: One(name) for name in "abc"}
    judge.queue.add(judge.actions)
    await judge.until_idle()
    assert done == ["a", "c", "b"]


async def test_one_that_must_wait_longer_when_its_turn_comes_wakes_the_next() -> None:
    """It waits for a place for one action, and is then due another one that failed before."""
    done = []

    async def do(action: One) -> None:
        done.append(f"{type(action).__name__} {action.name}")
        if done == ["One a"]:
            judge.actions |= {"a": Other("a"), "b": One("b"), "c": One("c")}
            judge.queue.add("bac")
            raise TryAgainLater("failed", after=60.0)
        if action.name == "b":
            # Both others are in line by now.
            while judge.queue:
                await asyncio.sleep(0)
            judge.actions["a"] = One("a")
            del judge.actions["b"]
        if action.name == "c":
            judge.actions.clear()

    judge = Judge(do, at_a_time=1)
    judge.actions = {"a": One("a")}
    judge.queue.add("a")
    await judge.until_idle()
    assert done == ["One a", "One b", "One c"]


async def test_what_is_asked_for_meanwhile_is_done_next() -> None:
    """A claim that is given another node while the label of the first is being written."""
    seen = []

    async def do(action: One) -> None:
        seen.append(action)
        if len(seen) == 1:
            judge.actions["a"] = One("a", "2")
            judge.queue.add(["a"])
            await asyncio.sleep(0.05)
        else:
            judge.actions.clear()

    judge = Judge(do, settle_seconds=3600.0)
    judge.actions = {"a": One("a", "1")}
    judge.queue.add(["a"])
    await judge.until_idle()
    assert [action.version for action in seen] == ["1", "2"]


async def test_a_conflict_waits_for_news_and_no_longer() -> None:
    seen = []

    async def do(action: One) -> None:
        seen.append(action.version)
        if action.version == "1":
            asyncio.get_running_loop().call_later(0.02, tell, "1")
            asyncio.get_running_loop().call_later(0.05, tell, "2")
            raise LookAgain("changed")
        judge.actions.clear()

    def tell(version: str) -> None:
        judge.actions["a"] = One("a", version)
        judge.queue.add(["a"])

    judge = Judge(do, settle_seconds=3600.0)
    judge.actions = {"a": One("a", "1")}
    judge.queue.add(["a"])
    await judge.until_idle()
    assert seen == ["1", "2"]


async def test_a_failure_that_displaces_an_earlier_one_is_waited_out() -> None:
    """It came to another action while the first waited: that one's time must not be the last."""
    seen = []

    async def do(action: One) -> None:
        seen.append(type(action).__name__)
        if len(seen) == 1:
            asyncio.get_running_loop().call_later(0.1, tell)
            raise TryAgainLater("first", after=1.0)
        if len(seen) == 2:
            raise TryAgainLater("second", after=1.5)
        judge.actions.clear()

    def tell() -> None:
        judge.actions["a"] = Other("a")
        judge.queue.add(["a"])

    judge = Judge(do)
    judge.actions = {"a": One("a")}
    judge.queue.add(["a"])
    await judge.until_idle()
    assert seen == ["One", "Other", "Other"]


async def test_a_refusal_counts_until_nothing_is_to_be_done_about_its_object() -> None:
    """Somebody else did what was refused: no act of ours succeeds any more to show that."""

    async def do(action: One) -> None:
        if action.name == "a":
            raise TellTheAdministrator("no right", status=403)
        judge.actions.pop(action.name)

    judge = Judge(do)
    judge.actions = {"a": One("a")}
    judge.queue.add("a")
    running = asyncio.create_task(judge.run())
    try:
        await until_async(lambda: judge.executor.refused)
        assert judge.executor.refused == "no right (403)"
        # That another object is done says nothing about this one.
        judge.actions["b"] = One("b")
        judge.queue.add("b")
        await until_async(lambda: "b" not in judge.actions)
        assert judge.executor.refused
        del judge.actions["a"]
        judge.queue.add("a")
        await until_async(lambda: not judge.executor.refused)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        judge.queue.close()
        await judge.executor.stop()


@pytest.mark.parametrize(
    "error", [None, TryAgainLater("away", after=3600.0)], ids=["done", "failed otherwise"]
)
async def test_a_refusal_counts_until_an_attempt_is_not_refused(error: Exception | None) -> None:
    """Also if more is to be done about the object."""
    tries = 0

    async def do(_: One) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise TellTheAdministrator("no right", status=403)
        if tries == 2 and error is not None:
            raise error
        if tries > 2:
            await asyncio.Event().wait()

    judge = Judge(do)
    judge.actions = {"a": One("a")}
    judge.queue.add("a")
    running = asyncio.create_task(judge.run())
    try:
        await until_async(lambda: judge.executor.refused)
        await until_async(lambda: not judge.executor.refused)
        assert tries > 1
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        judge.queue.close()
        await judge.executor.stop()
