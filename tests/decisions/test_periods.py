"""When a promised period is over: by no jump of one clock, and of none while a process looks on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.volumes.periods import (
    FAR_SECONDS,
    NOBODY,
    Moment,
    Witness,
    Witnessed,
    doubt,
    left,
)

SINCE, UNTIL = 1_800_000_000.0, 1_800_003_600.0
YEAR = 365 * 86400.0
BEFORE, AFTER = UNTIL - 600, UNTIL + 600
AGREED = Witnessed(600.0, AFTER)


@pytest.mark.parametrize(
    ("now", "witnessed", "expected"),
    [
        pytest.param(Moment(AFTER, AFTER), AGREED, -600.0, id="all-agree"),
        pytest.param(Moment(AFTER + YEAR, BEFORE), AGREED, 600.0, id="this-machine-jumped"),
        pytest.param(Moment(BEFORE, AFTER + YEAR), AGREED, 600.0, id="the-server-jumped"),
        pytest.param(
            Moment(AFTER + YEAR, AFTER + YEAR), Witnessed(60.0, BEFORE), 600.0, id="both-jumped"
        ),
        pytest.param(Moment(BEFORE, BEFORE), AGREED, 600.0, id="both-were-ahead-at-first"),
        pytest.param(Moment(AFTER, None), AGREED, 3000.0, id="the-server-has-not-told"),
        pytest.param(Moment(AFTER, AFTER), Witnessed(600.0), 3000.0, id="it-never-had-at-first"),
        pytest.param(Moment(AFTER, AFTER), NOBODY, 3600.0, id="nobody-has-looked"),
        pytest.param(Moment(SINCE, None), Witnessed(3600.0), 0.0, id="seen-all-of-it"),
        pytest.param(Moment(SINCE, None), Witnessed(3599.0), 1.0, id="seen-nearly-all-of-it"),
    ],
)
def test_how_much_is_left(now: Moment, witnessed: Witnessed, expected: float) -> None:
    assert left(SINCE, UNTIL, now, witnessed) == expected


def test_without_a_beginning_only_the_clocks_can_end_it() -> None:
    assert left(None, UNTIL, Moment(AFTER, AFTER), Witnessed(YEAR, AFTER)) == -600.0
    assert left(None, UNTIL, Moment(AFTER, None), Witnessed(YEAR, AFTER)) == math.inf


TIMES = st.floats(-YEAR, YEAR)


@given(TIMES, st.none() | TIMES, st.floats(0, 3600, exclude_max=True), TIMES)
def test_no_jump_ends_what_a_process_sees_from_its_beginning(
    here: float, server: float | None, seen: float, first: float
) -> None:
    """Whatever the clocks say afterwards: at first they said that it begins, or less."""
    now = Moment(UNTIL + here, None if server is None else UNTIL + server)
    credible = min(SINCE, SINCE + first) + seen
    assert left(SINCE, UNTIL, now, Witnessed(seen, credible)) > 0


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (Moment(AFTER, AFTER), ""),
        (Moment(AFTER, None), ""),
        (Moment(AFTER, UNTIL - FAR_SECONDS), "this machine's clock is far ahead of the API"),
        (Moment(UNTIL, UNTIL - FAR_SECONDS), ""),
        (Moment(BEFORE, AFTER), "the API server's is far ahead of this machine's"),
        (Moment(BEFORE - YEAR, BEFORE), ""),
    ],
)
def test_clocks_of_which_one_must_be_wrong(now: Moment, said: str) -> None:
    found = doubt(UNTIL, now)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_a_witness_remembers_each_beginning_by_what_is_written_of_it() -> None:
    witness = Witness()
    early, late = Moment(SINCE + YEAR, SINCE), Moment(SINCE + 2 * YEAR, SINCE + 2 * YEAR)
    assert witness.look({"a": "x"}, early, 10.0) == {"a": Witnessed(0.0, SINCE)}
    assert witness.look({"a": "x"}, late, 15.0) == {"a": Witnessed(5.0, SINCE + 5.0)}
    # Another beginning, and one after it was not marked any more.
    assert witness.look({"a": "y"}, early, 20.0) == {"a": Witnessed(0.0, SINCE)}
    assert witness.look({}, early, 25.0) == {}
    assert witness.look({"a": "y"}, early, 30.0) == {"a": Witnessed(0.0, SINCE)}


def test_a_witness_begins_before_the_server_has_told_its_time() -> None:
    witness = Witness()
    assert witness.look({"a": "x"}, Moment(SINCE, None), 10.0) == {"a": Witnessed(0.0, None)}
    told = witness.look({"a": "x"}, Moment(SINCE, SINCE - 1), 14.0)
    assert told == {"a": Witnessed(4.0, SINCE - 1)}
    assert witness.look({"a": "x"}, Moment(SINCE, None), 16.0) == {"a": Witnessed(6.0, SINCE + 1)}
