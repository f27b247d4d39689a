"""What of each node is promised and free, as bars: pure, from the shape of the status to cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rich.text import Text

from localvolume.cli.seeing.status.states import BUSY, WELL
from localvolume.cli.seeing.words import UNKNOWN, size

WIDTH: Final = 30


class Part(NamedTuple):
    """`mark` and `plain` (for terminals without Unicode) differ, as colours may not be seen."""

    word: str
    mark: str
    plain: str
    style: str


PARTS: Final = (
    Part("to look at", "╳", "!", "red"),
    Part("busy", "▒", "~", "yellow"),
    Part("promised", "█", "#", "green"),
    Part("available", "░", "-", "green"),
    Part("room in pools", "·", ".", "bright_black"),
)
"""In the order in which a bar has them."""


def bars(status: Mapping[str, Any], *, unicode: bool) -> list[tuple[str, Text, str]]:
    """For each node that has anything: its name, its bar, and the bar's figures as words."""
    if status["volumes"] is None:
        return []
    found: dict[str, list[int]] = {}
    unread: set[str] = set()
    for volume in status["volumes"]:
        sizes = found.setdefault(volume["node"], [0] * len(PARTS))
        if volume["capacityBytes"] is None:
            unread.add(volume["node"])
        sizes[_part(volume["state"])] += volume["capacityBytes"] or 0
    rows = []
    for node in status["nodes"]:
        sizes = found.get(node["name"], [0] * len(PARTS))
        # Classes may share a pool: what is surely free is what the largest has.
        sizes[-1] = max((one["roomBytes"] or 0 for one in node["rooms"] or ()), default=0)
        said = [
            f"{size(number)} {part.word}"
            for part, number in zip(PARTS, sizes, strict=True)
            if number
        ]
        if node["name"] in unread or node["rooms"] is None:
            said.append(f"{UNKNOWN} more")
        if said:
            rows.append((node["name"], drawn(sizes, unicode=unicode), ", ".join(said)))
    return rows


def drawn(sizes: Sequence[int], *, unicode: bool) -> Text:
    """A bar of WIDTH marks, one for each of PARTS that is not nothing at least."""
    text = Text()
    for part, cells in zip(PARTS, shares(sizes, WIDTH), strict=True):
        text.append((part.mark if unicode else part.plain) * cells, part.style)
    return text


def shares(sizes: Sequence[int], width: int) -> list[int]:
    """`width` shared out by size; what is not nothing has one at least. All 0 if nothing is."""
    total = sum(sizes)
    if not total:
        return [0] * len(sizes)
    found = [max(1, number * width // total) if number else 0 for number in sizes]
    largest = found.index(max(found))
    found[largest] += width - sum(found)
    return found


def _part(state: str) -> int:
    """The place in PARTS of a volume's state."""
    if state == "available":
        return 3
    if state in WELL:
        return 2
    return 1 if state in BUSY else 0
