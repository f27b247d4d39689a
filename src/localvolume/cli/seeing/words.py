"""Sizes, ages and cells for people. What is unknown is shown as such, never as nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from localvolume.cli.seeing.facts import moment

UNKNOWN: Final = "?"

_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_PARTS: Final = ((86400, "d"), (3600, "h"), (60, "m"))


def size(count: int | None) -> str:
    """A rounded size, with at most one digit after the point: `1.5Gi`."""
    if count is None:
        return UNKNOWN
    value, power = float(count), 0
    while value >= 1024 and power < len(_UNITS) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.1f}".removesuffix(".0") + _UNITS[power]


def pairs(found: Mapping[str, str]) -> str:
    """Names and values, as an identity has them: `serial: S1, wwn: naa.5`."""
    return ", ".join(f"{name}: {value}" for name, value in found.items())


def age(now: float, text: str | None) -> str:
    """How long ago, in the format of kubectl: `3d`, `5h`, `12m`, `40s`."""
    since = moment(text)
    if since is None:
        return UNKNOWN
    seconds = max(0, int(now - since))
    for length, unit in _PARTS:
        if seconds >= 2 * length or (seconds >= length and unit == "m"):
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
