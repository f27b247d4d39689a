"""The loop and the runner of every role: when something is looked at, done, and tried again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from localvolume.host.process.workers import UNREADABLE, Hung
from localvolume.kube.backoff import Backoff
from localvolume.reconcile.loop import CannotLook, Loop, Rest
from localvolume.reconcile.runner import Answer, Failing, Runner
from tests.decisions.support_leaping import at_once
from tests.suite.until import until_async

AT_ONCE = Rest(longest=0.0)


@contextlib.asynccontextmanager
async def running(loop: Loop) -> AsyncIterator[Loop]:
    task = asyncio.create_task(loop.run())
    try:
        yield loop
    finally:
        task.cancel()
        ended, _ = await asyncio.wait({task}, timeout=30.0)
        if not ended:
            # Once in its look and once after it: else it would outlast the test.
            for one in asyncio.all_tasks() - {asyncio.current_task()}:
                one.cancel()
            raise AssertionError("it was cancelled, and goes on")
        with contextlib.suppress(asyncio.CancelledError):
            await task


def looks_of(
    seconds: float,
    answer: Callable[[], float] = lambda: 0.0,
    *,
    changes: Sequence[float] = (),
    rest: Rest | None = AT_ONCE,
    resync: Callable[[], float] = lambda: math.inf,
    settle: float | None = None,
) -> list[float]:
    """When it looks within so many seconds from its begin. Nobody waits for them."""

    async def run() -> list[float]:
        clock, looks = asyncio.get_running_loop(), list[float]()

        async def look() -> float:
            looks.append(round(clock.time(), 3))
            return answer()

        loop = Loop("x", look, rest=rest, resync=resync)
        if settle is not None:
            loop.settle = settle
        for at in changes:
            clock.call_at(at, loop.wake)
        async with running(loop):
            await asyncio.sleep(seconds)
        return looks

    return at_once(run())


# --- the loop ----------------------------------------------------------------------------------


async def test_it_looks_once_for_all_that_changes_meanwhile() -> None:
    let_go = asyncio.Event()

    async def look() -> float:
        await let_go.wait()
        return 0.0

    async with running(Loop("x", look, rest=AT_ONCE)) as loop:
        await until_async(lambda: loop.looking_since is not None)
        for _ in range(5):
            loop.wake()
        let_go.set()
        await until_async(lambda: loop.looks == 2)
        await asyncio.sleep(0.05)
        assert (loop.looks, loop.problem) == (2, "")


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (OSError(5, "Input/output error"), "cannot be looked at: [Errno 5]"),
        (Hung("/mnt/dead", 10.0), "cannot be looked at"),
        (ZeroDivisionError("ours"), "a mistake of ours: ZeroDivisionError"),
        (CannotLook("there is no Node"), "there is no Node"),
    ],
)
async def test_a_look_that_fails_is_told_and_ends_nothing(error: Exception, problem: str) -> None:
    fails = True

    async def look() -> float:
        if fails:
            raise error
        return 0.0

    async with running(Loop("x", look, rest=AT_ONCE, unreadable=UNREADABLE)) as loop:
        await until_async(lambda: problem in loop.problem)
        assert loop.looks == 0
        fails = False
        loop.wake()
        await until_async(lambda: loop.looks == 1)
        assert loop.problem == ""


@pytest.mark.parametrize(
    ("error", "level", "said"),
    [
        (CannotLook("there is no Node"), "ERROR", "there is no Node"),
        (OSError("no disk"), "WARNING", "this node cannot be looked at: no disk"),
        (ValueError("ours"), "ERROR", "a mistake of ours: ValueError('ours')"),
    ],
)
async def test_what_keeps_it_from_looking_is_said_once(
    error: Exception, level: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 0

    async def look() -> float:
        nonlocal tries
        tries += 1
        loop.wake()
        raise error

    loop = Loop("disks", look, rest=AT_ONCE)
    async with running(loop):
        await until_async(lambda: tries > 3)
    told = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert [(one.levelname, one.getMessage()) for one in told] == [(level, f"disks: {said}")]
    # Of a mistake of ours, where it was made.
    assert bool(told[0].exc_info) is isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("error", "looks"),
    [
        (OSError(5, "Input/output error"), [0.0, 5.0, 10.0]),
        (Hung("/mnt/dead", 10.0), [0.0, 5.0, 10.0]),
        (ZeroDivisionError("ours"), [0.0, 5.0, 10.0]),
        (CannotLook("there is no Node", 4.0), [0.0, 4.0, 8.0, 12.0]),
        (CannotLook("there is no Node"), [0.0]),
    ],
)
def test_a_look_that_failed_is_tried_again_without_any_event(
    error: Exception, looks: list[float]
) -> None:
    def fail() -> float:
        raise error

    assert looks_of(14.0, fail) == looks


def test_what_the_last_look_asked_for_counts_alone() -> None:
    answers = itertools.chain([10.0, 20.0], itertools.repeat(0.0))
    assert looks_of(100.0, lambda: next(answers), changes=[1.0]) == [0.0, 1.0, 21.0]


def test_a_loop_that_is_begun_again_knows_nothing_of_what_was_asked_for_before() -> None:
    """As FlexVolume's is under another configuration."""

    async def run() -> int:
        async def look() -> float:
            return 10.0

        loop = Loop("x", look, rest=AT_ONCE)
        for _ in range(2):
            async with running(loop):
                await asyncio.sleep(9.0)
        return loop.looks

    assert at_once(run()) == 1


def test_what_changes_is_looked_at_once_it_has_settled_and_the_first_look_is_at_once() -> None:
    assert looks_of(9.0, settle=2.0, changes=[1.0, 2.0]) == [0.0, 3.0]
    assert looks_of(9.0, changes=[1.0, 2.0]) == [0.0, 1.0, 2.0]


def test_what_changes_while_it_rests_is_one_looks_work() -> None:
    rest = Rest(shortest=3.0, longest=3.0)
    assert looks_of(20.0, rest=rest, changes=[0.5, 1.0, 7.0, 8.0, 15.0]) == [
        0.0,
        3.0,
        7.0,
        10.0,
        15.0,
    ]


def test_rest_is_put_off_and_made_up_for_once_nothing_calls_for_a_look() -> None:
    rest = Rest(shortest=3.0, longest=3.0, owing=7.0)
    # Where something always calls, it looks as often as without, but for the first two.
    always = [number / 2 for number in range(60)]
    assert looks_of(12.0, rest=rest, changes=always) == [0.0, 0.5, 1.0, 2.0, 5.0, 8.0, 11.0]
    # Time in which nothing calls counts as rest; more of it than was owed earns nothing.
    some = [0.1, 3.1, 8.1, 8.2, 8.3, 8.4, 60.0, 60.1, 60.2, 60.3]
    few = [0.0, 0.1, 3.1, 8.1, 8.2, 8.3, 11.0, 60.0, 60.1, 60.2, 62.0]
    assert looks_of(90.0, rest=rest, changes=some) == few


def test_it_resyncs_at_times_that_differ_and_as_often_as_it_is_said_each_time() -> None:
    """Agents that were started together must not ask together."""
    periods = itertools.chain([10.0] * 50, [1000.0], itertools.repeat(math.inf))
    looks = looks_of(10_000.0, resync=lambda: next(periods))
    gaps = [after - before for before, after in itertools.pairwise(looks)]
    assert len(gaps) == 51
    assert all(10.0 <= gap <= 20.0 for gap in gaps[:50])
    assert max(gaps[:50]) - min(gaps[:50]) > 1.0
    assert 1000.0 <= gaps[50] <= 2000.0


def test_before_the_first_look_it_is_not_known_that_all_is_well() -> None:
    async def look() -> float:
        return 0.0

    assert Loop("x", look).problem == "nothing has been looked at yet"


async def test_it_looks_again_by_itself_when_a_look_asks_for_that() -> None:
    async def look() -> float:
        return 0.01 if loop.looks < 3 else 0.0

    loop = Loop("x", look, rest=AT_ONCE)
    async with running(loop):
        await until_async(lambda: loop.looks == 4)
        await asyncio.sleep(0.05)
        assert loop.looks == 4


async def test_it_resyncs_without_any_event() -> None:
    resyncs = 0

    def at_resync() -> None:
        nonlocal resyncs
        resyncs += 1

    async def look() -> float:
        return 0.0

    loop = Loop("x", look, rest=AT_ONCE, resync=lambda: 0.01, at_resync=at_resync)
    async with running(loop):
        await until_async(lambda: loop.looks > 3)
        assert resyncs >= 3


def test_it_rests_as_long_as_the_look_took_times_a_factor_and_within_bounds() -> None:
    rest = Rest(factor=4.0, shortest=0.5, longest=1.0)
    assert [rest.after(took) for took in (0.01, 0.2, 3.0)] == [0.5, 0.8, 1.0]
    assert [Rest().after(took) for took in (0.0, 0.1, 9.0)] == [0.0, 0.4, 1.0]


async def test_a_look_that_does_not_end_is_known_to_be_stuck() -> None:
    async def look() -> float:
        await asyncio.Event().wait()
        return 0.0

    async with running(Loop("x", look)) as loop:
        await until_async(lambda: loop.stuck(0.01))
        assert not loop.stuck(3600.0)


async def test_a_loop_that_was_ended_during_a_look_is_not_stuck() -> None:
    """As FlexVolume's is where it is configured no more: the agent would be restarted for it."""

    async def look() -> float:
        await asyncio.Event().wait()
        return 0.0

    async with running(Loop("x", look)) as loop:
        await until_async(lambda: loop.looking_since is not None)
    assert not loop.stuck(0.0)


# --- the runner --------------------------------------------------------------------------------


class Doer:
    """A runner of words, each of which ends when it is let go, with `errors` if there are any."""

    def __init__(self, **options: object) -> None:
        self.begun: list[str] = []
        self.ended: list[tuple[str, float | None]] = []
        self.errors: list[Exception] = []
        self._doors: dict[str, asyncio.Event] = {}
        act: Callable[[str], Awaitable[None]] = self._act
        self.runner = Runner[str](
            act,
            failed=self._failed,
            ended=lambda key, _action, wait: self.ended.append((key, wait)),
            backoff=lambda: Backoff(3600.0, 3600.0, spread=0.0),
            **options,  # type: ignore[arg-type]
        )

    async def _act(self, action: str) -> None:
        self.begun.append(action)
        await self._doors.setdefault(action, asyncio.Event()).wait()
        if self.errors:
            raise self.errors.pop()

    def _failed(self, _key: str, _action: str, error: Exception, failing: Failing) -> float:
        return failing.overtaken() if isinstance(error, LookupError) else failing.again()

    def full(self) -> bool:
        return self.runner.full

    async def stop(self, seconds: float) -> None:
        """Fails where that has no end."""
        async with asyncio.timeout(30.0):
            await self.runner.stop(seconds)

    def close(self) -> None:
        """From now on each waits again until it is let go."""
        self._doors.clear()

    async def let_go(self, action: str) -> None:
        before = len(self.ended)
        self._doors.setdefault(action, asyncio.Event()).set()
        await until_async(lambda: len(self.ended) > before)


async def test_a_key_never_has_two_actions_under_way() -> None:
    doer = Doer()
    assert doer.runner.offer("a", "one") == Answer.BEGUN
    assert doer.runner.offer("a", "two") == Answer.BUSY
    assert doer.runner.offer("b", "three") == Answer.BEGUN
    await doer.let_go("one")
    assert doer.runner.offer("a", "two") == Answer.BEGUN
    await until_async(lambda: doer.begun == ["one", "three", "two"])
    await doer.stop(0.0)


async def test_a_failure_is_waited_out_by_its_kind_alone() -> None:
    doer = Doer(kind=lambda action: action.split()[0])
    doer.errors.append(ValueError("x"))
    doer.runner.offer("a", "grow it")
    await doer.let_go("grow it")
    assert doer.ended == [("a", 3600.0)]
    assert doer.runner.offer("a", "grow more") == Answer.EARLY
    assert doer.runner.offer("a", "remove it") == Answer.BEGUN
    await doer.let_go("remove it")
    assert doer.runner.offer("a", "grow more") == Answer.EARLY
    doer.runner.forget("a")
    assert doer.runner.offer("a", "grow more") == Answer.BEGUN
    await doer.stop(0.0)


async def test_a_success_begins_anew_with_short_waits() -> None:
    doer = Doer()
    waits = []
    for outcome in ("", "", "well", ""):
        doer.errors = [] if outcome else [LookupError("it changed")]
        doer.runner.wait("a", "it", 0.0)
        doer.runner.offer("a", "it")
        await doer.let_go("it")
        waits.append(doer.ended[-1][1])
    assert waits == [0.2, 0.4, None, 0.2]


def test_what_was_overtaken_time_and_again_is_tried_every_two_seconds() -> None:
    """Also after so many times that the doubled wait would be no number any more."""
    failing = Failing(Backoff())
    waits = [failing.overtaken() for _ in range(2000)]
    assert waits[:6] == [0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert waits[-1] == 2.0


def test_a_wait_after_a_failure_is_at_least_what_the_server_asked_for() -> None:
    failing = Failing(Backoff(1.0, 60.0, spread=0.0))
    assert [failing.again(), failing.again(30.0), failing.again()] == [1.0, 32.0, 4.0]


async def test_what_is_remembered_of_a_key_keeps_nothing_from_beginning() -> None:
    doer = Doer()
    doer.runner.failing("a", "it").note = "it was said"
    assert doer.runner.offer("a", "it") == Answer.BEGUN
    await doer.runner.end()


async def test_a_success_says_nothing_of_the_other_kinds() -> None:
    doer = Doer(kind=lambda action: action.split()[0])
    doer.runner.wait("a", "grow it", 3600.0)
    for action in ("remove it", "remove more"):
        assert doer.runner.offer("a", action) == Answer.BEGUN
        assert doer.runner.offer("a", "grow it") == Answer.BUSY, "whatever it waits for"
        await doer.let_go(action)
    assert doer.runner.offer("a", "grow it") == Answer.EARLY
    assert 3500.0 < doer.runner.left("a", "grow it") <= 3600.0
    assert doer.runner.left("a", "remove it") == doer.runner.left("b", "grow it") == 0.0


async def test_what_failed_at_a_key_is_forgotten_with_it() -> None:
    doer = Doer()
    for key in "abc":
        doer.runner.wait(key, "it", 3600.0)
    doer.runner.forget_but({"a", "b"})
    doer.runner.forget("b")
    doer.runner.forget("z")
    assert [doer.runner.known(key, "it") is not None for key in "abc"] == [True, False, False]
    assert list(doer.runner.all_failing()) == [doer.runner.known("a", "it")]


async def test_without_a_bound_there_is_always_a_place() -> None:
    doer = Doer()
    keys = [str(number) for number in range(100)]
    assert {doer.runner.offer(key, key) for key in keys} == {Answer.BEGUN}
    assert not doer.full()
    await doer.let_go("7")
    assert not doer.full()
    await doer.runner.end()


@pytest.mark.parametrize("queued", [False, True])
async def test_whatever_became_of_an_action_its_place_is_free_and_no_other(queued: bool) -> None:
    doer = Doer(at_a_time=2, queued=queued, counted=lambda action: action != "clean")
    for outcome in (None, ValueError("x"), None):
        for key in ("a", "b", "clean"):
            assert doer.runner.offer(key, key) == Answer.BEGUN
        assert doer.full()
        await doer.let_go("clean")
        assert doer.full()
        doer.errors = [outcome] if outcome else []
        await doer.let_go("a")
        assert not doer.full()
        await doer.let_go("b")
        doer.close()
        doer.runner.forget("a")
    assert not doer.runner.busy


async def test_what_waits_has_its_turn_in_the_order_in_which_it_came() -> None:
    doer = Doer(at_a_time=1, queued=True)
    for key in "abcd":
        doer.runner.offer(key, key)
    assert list(doer.runner.under_way()) == ["a", "b", "c", "d"]
    assert doer.runner.offer("c", "another") == Answer.BUSY
    for number, key in enumerate("abcd", 1):
        await until_async(lambda: len(doer.begun), number.__le__)
        assert "".join(doer.begun) == "abcd"[:number]
        assert doer.full()
        await doer.let_go(key)
    assert not doer.full()


async def test_where_as_many_as_may_be_are_under_way_one_more_finds_no_place() -> None:
    doer = Doer(at_a_time=2)
    answers = [doer.runner.offer(key, key) for key in "abc"]
    assert answers == [Answer.BEGUN, Answer.BEGUN, Answer.FULL]
    assert set(doer.runner.busy) == {"a", "b"}
    await doer.let_go("a")
    assert doer.runner.offer("c", "c") == Answer.BEGUN
    await doer.stop(0.0)


async def test_or_waits_for_its_turn_and_only_what_is_counted_does() -> None:
    doer = Doer(at_a_time=1, queued=True, counted=lambda action: action != "clean")
    answers = [doer.runner.offer(key, key) for key in ("a", "b", "clean")]
    assert answers == [Answer.BEGUN] * 3
    await until_async(lambda: doer.begun == ["a", "clean"])
    assert set(doer.runner.busy) == {"a", "b", "clean"}
    await doer.let_go("a")
    await until_async(lambda: doer.begun == ["a", "clean", "b"])
    doer.runner.offer("c", "c")
    doer.runner.forget_waiting()
    assert set(doer.runner.busy) == {"b", "clean"}
    await doer.runner.end()
    assert not doer.runner.busy


async def test_a_stop_lets_what_is_under_way_end_and_then_cancels_it() -> None:
    doer = Doer()
    doer.runner.offer("a", "quick")
    doer.runner.offer("b", "never")
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(doer._doors["quick"].set)
    await doer.stop(1.0)
    assert doer.ended == [("a", None)]
    assert not doer.runner.busy


async def test_a_stop_of_nothing_is_over_at_once() -> None:
    await Doer().runner.stop()
    await Doer().runner.end()


@pytest.mark.parametrize("stopped", [True, False])
async def test_neither_a_stop_nor_an_end_begins_what_waits(stopped: bool) -> None:
    doer = Doer(at_a_time=1, queued=True)
    for key in "ab":
        doer.runner.offer(key, key)
    await until_async(lambda: doer.begun == ["a"])
    await (doer.stop(0.0) if stopped else doer.runner.end())
    await asyncio.sleep(0.01)
    assert doer.begun == ["a"]
    assert not doer.runner.busy


@pytest.mark.parametrize(
    ("takes", "seconds", "until"),
    [(0.0, None, 5.0), (3.0, None, 8.0), (3.0, 1.0, 4.0), (60.0, None, 10.0), (60.0, 1.0, 6.0)],
)
def test_a_stop_waits_for_so_long_and_then_for_what_was_cancelled_but_not_for_ever(
    takes: float, seconds: float | None, until: float
) -> None:
    """An action that goes on until it is cancelled, and takes so many seconds to end then."""

    async def act(_action: str) -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            await asyncio.sleep(takes)

    async def run() -> float:
        runner = Runner[str](act, failed=lambda *_: 0.0, ended=lambda *_: None, backoff=Backoff)
        runner.offer("a", "it")
        await (runner.stop() if seconds is None else runner.stop(seconds))
        return asyncio.get_running_loop().time()

    assert at_once(run()) == pytest.approx(until)


async def test_an_end_waits_for_what_takes_its_time_to_end_also_where_it_is_cancelled() -> None:
    """A call to the host cannot be taken back: nobody else may work on its volume before."""
    begun, over = asyncio.Event(), asyncio.Event()

    async def act(_action: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            while not over.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await over.wait()

    runner = Runner[str](
        act,
        failed=lambda *_: 0.0,
        ended=lambda *_: None,
        backoff=Backoff,
    )
    runner.offer("a", "slow")
    await begun.wait()
    ending = asyncio.create_task(runner.end())
    try:
        await asyncio.sleep(0.01)
        ending.cancel()
        await asyncio.sleep(0.01)
        assert not ending.done()
        assert set(runner.busy) == {"a"}
    finally:
        over.set()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert not runner.busy
