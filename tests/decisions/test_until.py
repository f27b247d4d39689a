"""How tests wait: what they return and tell, how often they read, and how long a bound is."""

import asyncio
import itertools
import time
from collections.abc import Callable

import pytest

from tests.suite import speed
from tests.suite.until import until, until_async


def test_a_bound_is_longer_on_a_slow_machine_and_never_shorter() -> None:
    reference = speed.REFERENCE_SECONDS
    assert speed.factor_of(2.5 * reference) == pytest.approx(2.5)
    assert speed.factor_of(reference / 3) == 1
    assert speed.factor_of(1000 * reference) == speed.SLOWEST
    assert 1 <= speed.factor() <= speed.SLOWEST
    assert speed.factor() == speed.factor(), "it is measured once"


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> float:
    """Three times as slow as the machine of the bounds."""
    monkeypatch.setattr(speed, "factor", lambda: 3.0)
    return 3.0


def counter() -> Callable[[], int]:
    numbers = itertools.count(1)
    return lambda: next(numbers)


class Over(Exception):
    """Waiting for more is pointless."""


class TestUntil:
    def test_what_was_wanted_is_returned_and_nothing_is_read_after_it(self) -> None:
        read = counter()
        assert until(read, lambda number: number == 3, every=0.001) == 3
        assert read() == 4
        assert until(lambda: "there") == "there"

    def test_it_fails_with_what_was_last_read_and_what_somebody_says(self) -> None:
        read = counter()
        with pytest.raises(AssertionError) as failed:
            until(
                lambda: {"read": read()},
                lambda _: False,
                seconds=0.05,
                every=0.01,
                said=lambda: "the log\nof the agent",
            )
        assert f"last read: {{'read': {read() - 1}}}\nthe log\nof the agent" in str(failed.value)

    def test_much_is_cut_in_the_middle(self) -> None:
        with pytest.raises(AssertionError) as failed:
            until(lambda: ["begin", *range(100_000), "end"], lambda _: False, seconds=0)
        text = str(failed.value)
        assert len(text) < 7000
        assert "['begin', 0," in text
        assert "'end']" in text

    def test_its_bound_is_longer_on_a_slow_machine(self, slowly: float) -> None:
        began = time.monotonic()
        with pytest.raises(AssertionError, match=r"not so after \d+\.\d s"):
            until(lambda: False, seconds=0.2)
        assert time.monotonic() - began >= 0.2 * slowly

    def test_what_came_while_this_process_was_held_up_counts(self) -> None:
        """A bound that is over by the time of a look says nothing of what is so by then."""
        read = counter()

        def held_up() -> bool:
            time.sleep(0.05)
            return read() > 1

        assert until(held_up, seconds=0)

    def test_a_check_ends_it_at_once(self) -> None:
        def check() -> None:
            raise Over

        with pytest.raises(Over):
            until(lambda: False, check=check)
        assert until(lambda: True, check=check)

    def test_it_reads_ever_less_often(self) -> None:
        at: list[float] = []

        def read() -> int:
            at.append(time.monotonic())
            return len(at)

        until(read, lambda count: count == 6, every=0.1)
        pauses = [after - before for before, after in itertools.pairwise(at)]
        for pause, least in zip(pauses, [0.02, 0.03, 0.045, 0.0675, 0.1], strict=True):
            assert pause >= least * 0.99

    def test_a_failure_is_shown_where_it_is_waited_for(self) -> None:
        with pytest.raises(AssertionError) as failed:
            until(lambda: False, seconds=0)
        shown = [entry.name for entry in failed.traceback.filter(failed)]
        assert shown == ["test_a_failure_is_shown_where_it_is_waited_for"]


class TestUntilAsync:
    async def test_it_takes_functions_and_coroutine_functions(self) -> None:
        read, other = counter(), counter()

        async def later() -> int:
            await asyncio.sleep(0)
            return other()

        assert await until_async(read, lambda number: number == 3) == 3
        assert await until_async(later, lambda number: number == 3) == 3

    async def test_others_run_meanwhile(self) -> None:
        come = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, come.set)
        assert await until_async(come.is_set)

    async def test_it_fails_as_the_other_does(self, slowly: float) -> None:
        began = time.monotonic()
        with pytest.raises(AssertionError, match="last read: 'half'\na log") as failed:
            await until_async(lambda: "half", lambda _: False, seconds=0.2, said=lambda: "a log")
        assert time.monotonic() - began >= 0.2 * slowly
        shown = [entry.name for entry in failed.traceback.filter(failed)]
        assert shown == ["test_it_fails_as_the_other_does"]

    async def test_a_check_ends_it_at_once(self) -> None:
        def check() -> None:
            raise Over

        with pytest.raises(Over):
            await until_async(lambda: False, check=check)

    async def test_a_reading_that_hangs_is_an_end(self) -> None:
        with pytest.raises(TimeoutError):
            await until_async(asyncio.Event().wait, seconds=0.05)
