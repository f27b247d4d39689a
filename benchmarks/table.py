"""One table: what was measured, upstream's figure, the limit, the goal, ours, and whether met."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """`goal` in the figure's unit: not more than this; None where there is none.

    `limit`, in the same unit, is what the bare command or call took in the same run: nobody can be
    faster who must do it.
    """

    name: str
    value: float
    unit: str
    upstream: str
    goal: float | None
    limit: float | None = None

    @property
    def met(self) -> bool:
        return self.goal is None or self.value <= self.goal


def _amount(value: float, unit: str) -> str:
    digits = 3 if unit == "s" and abs(value) < 1 else 2 if abs(value) < 10 else 1
    return f"{value:,.{digits}f} {unit}"


def render(figures: Sequence[Figure]) -> str:
    """The table as text, one line per figure."""
    rows = [("measure", "upstream", "limit", "goal", "ours", "")]
    for figure in figures:
        goal = "" if figure.goal is None else f"≤ {_amount(figure.goal, figure.unit)}"
        verdict = "" if figure.goal is None else "met" if figure.met else "MISSED"
        ours = _amount(figure.value, figure.unit)
        limit = "" if figure.limit is None else _amount(figure.limit, figure.unit)
        rows.append((figure.name, figure.upstream, limit, goal, ours, verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
