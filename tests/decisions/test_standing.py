"""What stands of one subject: when it is said, when again, and that it is over."""

from __future__ import annotations

from localvolume.kube.correlate import EventType
from localvolume.kube.standing import AGAIN_SECONDS, Standing
from tests.suite.clock import Clock, turns
from tests.suite.until import until_async

Words = list[tuple[EventType, str, str]]


def standing() -> tuple[Standing, Words]:
    said: Words = []
    return Standing(lambda *words: said.append(words), "Bad", "BadOver"), said


def bad(*texts: str) -> Words:
    return [("Warning", "Bad", text) for text in texts]


async def test_what_stands_is_said_when_it_is_new_or_changed() -> None:
    one, said = standing()
    assert one.stands("a") == ["a"]
    assert one.stands("a") == []
    assert one.stands("a", "b") == ["b"]
    assert one.stands("b") == []
    assert one.stands("a", "b") == ["a"], "it had gone, and is back"
    assert said == bad("a", "b", "a")


async def test_it_is_said_again_each_hour_while_it_stands() -> None:
    clock = Clock()
    one, said = standing()
    one.stands("before")
    one.stands("a", "b")
    said.clear()
    clock.move_on(AGAIN_SECONDS - 600)
    await turns()
    assert said == []
    for hour in range(3):
        clock.move_on(AGAIN_SECONDS)
        await until_async(lambda: said)
        assert said == bad("a", "b"), hour
        said.clear()


async def test_that_it_is_over_is_said_once_and_then_nothing() -> None:
    clock = Clock()
    one, said = standing()
    assert not one.over("well")
    assert said == []
    one.stands("a")
    assert one.over("well")
    assert not one.over("well")
    clock.move_on(2 * AGAIN_SECONDS)
    await turns()
    assert said == [*bad("a"), ("Normal", "BadOver", "well")]
    assert one.stands("a") == ["a"], "it came back"


async def test_what_is_forgotten_is_not_said_again_nor_said_to_be_over() -> None:
    clock = Clock()
    one, said = standing()
    one.stands("a")
    one.forget()
    clock.move_on(2 * AGAIN_SECONDS)
    await turns()
    assert not one.over("well")
    assert said == bad("a")
    one.stands("a")
    clock.move_on(AGAIN_SECONDS)
    await until_async(lambda: said == bad("a", "a", "a"))
