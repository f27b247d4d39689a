"""The bars of `status` at a terminal: whole, true to their figures, clear without colour."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.cli.seeing.status.bars import PARTS, WIDTH, bars, shares
from localvolume.cli.seeing.status.overview import overview
from tests.decisions.support_seeing import facts, klass, node, room, volume

HEALTH = {"localvolume.dev/health": "ReadOnly: it is"}


def drawn(*things: Any, unicode: bool = True, **more: Any) -> list[tuple[str, str, str]]:
    found = bars(overview(facts(klass(), node(), *things, **more)), unicode=unicode)
    return [(name, text.plain, said) for name, text, said in found]


@given(st.lists(st.integers(0, 2**60), min_size=5, max_size=5))
def test_a_bar_is_whole_and_leaves_nothing_out(sizes: list[int]) -> None:
    found = shares(sizes, WIDTH)
    assert sum(found) == (WIDTH if any(sizes) else 0)
    assert [bool(cells) for cells in found] == [bool(number) for number in sizes]


def test_what_is_promised_free_busy_and_unwell_is_told_apart_without_colour() -> None:
    things = (
        volume("a", size="10Gi"),
        volume("b", phase="Bound", claim="x", size="10Gi"),
        volume("c", phase="Released", claim="y", size="5Gi"),
        volume("d", phase="Bound", claim="z", size="2Gi", annotations=HEALTH),
        room("made", "3Gi"),
    )
    said = "2Gi to look at, 5Gi busy, 10Gi promised, 10Gi available, 3Gi room in pools"
    assert drawn(*things) == [("n1", f"{'╳' * 2}{'▒' * 5}{'█' * 10}{'░' * 10}{'·' * 3}", said)]
    assert drawn(*things, unicode=False) == [
        ("n1", f"{'!' * 2}{'~' * 5}{'#' * 10}{'-' * 10}{'.' * 3}", said)
    ]
    assert len({part.mark for part in PARTS} | {part.plain for part in PARTS}) == 2 * len(PARTS)


def test_what_is_not_known_is_said() -> None:
    (row,) = drawn(volume("a", size="1Gi"), volume("b", size="no size"))
    assert row[2] == "1Gi available, ? more"
    without = {"csistoragecapacities": "not allowed"}
    (row,) = drawn(volume("a", size="1Gi"), without=without)
    assert row[2] == "1Gi available, ? more"
    assert drawn(without={"persistentvolumes": "not allowed"}) == []


@pytest.mark.parametrize("unicode", [True, False])
def test_a_node_with_nothing_has_no_bar(unicode: bool) -> None:
    assert drawn(unicode=unicode) == []
