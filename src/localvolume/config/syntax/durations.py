"""Go's durations, "1h30m" or "300ms": how the configuration and the flags write time.

Source: the documentation of Go's time.ParseDuration.
"""

import re

_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"(?=\.?[0-9])([0-9]*)\.?([0-9]*)([^0-9.]*)")
_LONGEST = 2**63 - 1
_DIGITS_ENOUGH = 100
_SHORTEST_PERIOD = 0.1
_EXAMPLE = 'write one like "90s", "5m" or "1h30m"'


class BadDuration(ValueError):
    """The text is no duration; the message says why. Correct the text."""


def parse_duration(text: str) -> float:
    """The seconds that a Go duration stands for; it may be negative. Raises BadDuration."""
    if len(text) > _DIGITS_ENOUGH:
        raise BadDuration(f"is too long for a duration; {_EXAMPLE}")
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    if not rest:
        raise BadDuration(f"{text!r} is no duration; {_EXAMPLE}")
    nanoseconds = 0
    at = 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            raise BadDuration(f"{text!r} is no duration; {_EXAMPLE}")
        whole, fraction, unit = part.groups()
        if not unit:
            raise BadDuration(f"{text!r} lacks a unit after {part.group()}; {_EXAMPLE}")
        if unit not in _UNITS:
            raise BadDuration(f"{text!r} has the unknown unit {unit!r}; use ns, us, ms, s, m, h")
        nanoseconds += int(whole + fraction) * _UNITS[unit] // 10 ** len(fraction)
        at = part.end()
    if nanoseconds > _LONGEST:
        raise BadDuration(f"{text!r} is longer than 292 years")
    return sign * nanoseconds / 10**9


def format_duration(seconds: float) -> str:
    """What parse_duration reads as so many seconds, to the millisecond; they are not negative."""
    minutes, rest = divmod(round(seconds, 3), 60)
    hours, minutes = divmod(int(minutes), 60)
    parts = ((str(hours), "h"), (str(minutes), "m"), (f"{rest:.3f}".rstrip("0").rstrip("."), "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number != "0") or "0s"


def parse_period(text: str) -> float:
    """The seconds of a period, at least 0.1. Raises BadDuration."""
    seconds = parse_duration(text)
    if seconds < _SHORTEST_PERIOD:
        raise BadDuration(f"{text!r} is shorter than 100ms")
    return seconds
