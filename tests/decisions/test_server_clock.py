"""What the `Date` of an answer tells of the server's time, and what it does not."""

from __future__ import annotations

import pytest

from localvolume.kube.http.serverclock import ServerClock

DATE = "Fri, 15 Jan 2027 08:00:00 GMT"
THEN = 1_800_000_000.0


class Steady:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_before_any_answer_nothing_is_known() -> None:
    clock = ServerClock()
    assert (clock.earliest(), clock.latest()) == (None, None)


def test_an_answer_is_dated_between_question_and_answer_in_whole_seconds() -> None:
    steady = Steady()
    clock = ServerClock(steady)
    clock.told(DATE, asked=97.0, answered=100.0)
    assert (clock.earliest(), clock.latest()) == (THEN, THEN + 4.0)
    steady.now += 3600.0
    assert (clock.earliest(), clock.latest()) == (THEN + 3600.0, THEN + 3604.0)


def test_the_newest_answer_counts_also_where_the_server_was_set_back() -> None:
    clock = ServerClock(Steady())
    clock.told(DATE.replace("2027", "2028"), 100.0, 100.0)
    clock.told(DATE, 100.0, 100.0)
    assert clock.earliest() == THEN


@pytest.mark.parametrize(
    "text", [None, "", "soon", "Fri, 99 Jan 2027 08:00:00 GMT", DATE.replace("GMT", "-0000")]
)
def test_what_is_no_date_tells_nothing(text: str | None) -> None:
    clock = ServerClock(Steady())
    clock.told(text, 100.0, 100.0)
    assert clock.earliest() is None
    clock.told(DATE, 100.0, 100.0)
    clock.told(text, 100.0, 100.0)
    assert clock.earliest() == THEN
