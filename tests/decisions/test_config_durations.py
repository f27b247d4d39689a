"""Durations are Go's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.config.syntax.durations import BadDuration, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("-0", 0.0),
        ("5s", 5.0),
        ("1h30m", 5400.0),
        ("300ms", 0.3),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("-1m", -60.0),
        ("+5m", 300.0),
        ("1us", 1e-6),
        ("1µs", 1e-6),
        ("1μs", 1e-6),
        ("100ns", 1e-7),
        ("1h1h", 7200.0),
        ("1s500ms1m", 61.5),
    ],
)
def test_reads_what_go_reads(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no duration"),
        ("-", "no duration"),
        ("5", "lacks a unit"),
        ("1.5", "lacks a unit"),
        ("5 s", "unknown unit ' s'"),
        ("5d", "unknown unit 'd'"),
        ("5S", "unknown unit 'S'"),
        (".s", "no duration"),
        ("s", "no duration"),
        ("--5s", "no duration"),
        ("1m30", "lacks a unit"),
        ("1e3s", "unknown unit 'e'"),
        ("٥s", "no duration"),
        ("3000000h", "longer than 292 years"),
        ("9" * 101 + "s", "too long"),
    ],
)
def test_refuses_the_rest_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(BadDuration, match=reason):
        parse_duration(text)


@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_adds_up(hours: int, minutes: int, seconds: int, milliseconds: int) -> None:
    text = f"{hours}h{minutes}m{seconds}s{milliseconds}ms"
    expected = hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    assert parse_duration(text) == pytest.approx(expected)


@given(st.text(alphabet="0123456789.hmsnuµ-+ d", max_size=12))
def test_never_fails_otherwise(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except BadDuration as error:
        assert str(error)  # noqa: PT017 - either outcome is right
    else:
        assert abs(seconds) <= 2**63 / 10**9


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.3, "0.3s"),
        (90.0, "1m30s"),
        (3600.0, "1h"),
        (5400.0, "1h30m"),
        (3600.0001, "1h"),
        (3599.9999, "1h"),
        (30 * 86400.0, "720h"),
        (290 * 365 * 86400.0, "2540400h"),
    ],
)
def test_writes_a_duration_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, 9 * 10**12))
def test_reads_what_it_writes(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000
