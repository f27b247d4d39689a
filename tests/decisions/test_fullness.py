"""How full a pool is, as its agent writes it down: rarely, never less, and read with suspicion."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.dynamic.plan.fullness import PoolSize, note_of, pools_in
from localvolume.dynamic.plan.plan import plan
from tests.decisions.support_dynamic import facts, pool, storage_class
from tests.suite.units import GIB

TOTAL = 100 * GIB


def said(used: int, before: str = "", total: int = TOTAL) -> int | None:
    return pools_in(note_of([("fast", PoolSize(total, used))], before))["fast"].used_bytes


@given(st.lists(st.integers(0, TOTAL), min_size=1, max_size=20))
def test_what_is_written_is_never_less_than_what_is_used_and_hardly_more(used: list[int]) -> None:
    note = ""
    for now in used:
        note = note_of([("fast", PoolSize(TOTAL, now))], note)
        told = pools_in(note)["fast"].used_bytes
        assert told is not None
        assert now <= told <= min(TOTAL, now + 2 * GIB)


def test_a_pool_at_the_edge_of_a_percent_is_not_written_again_and_again() -> None:
    note = note_of([("fast", PoolSize(TOTAL, 10 * GIB))])
    written = {note}
    for used in (10 * GIB + 1, 10 * GIB, 10 * GIB + 1, 10 * GIB - 1, 9 * GIB) * 3:
        note = note_of([("fast", PoolSize(TOTAL, used))], note)
        written.add(note)
    assert [pools_in(one)["fast"].used_bytes for one in sorted(written)] == [10 * GIB, 11 * GIB]
    assert said(9 * GIB - 1, note) == 9 * GIB


def test_nothing_used_is_nothing_and_no_pool_is_fuller_than_it_is_large() -> None:
    assert said(0) == 0
    assert said(1) == GIB
    assert said(TOTAL + 5) == TOTAL
    assert note_of([]) == ""


def test_what_was_said_of_another_size_does_not_count() -> None:
    note = note_of([("fast", PoolSize(2 * TOTAL, 11 * GIB))])
    assert said(10 * GIB, note) == 10 * GIB


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ('{"fast":5}', {"fast": (5, None)}),
        ('{"fast":{"totalBytes":5,"usedBytes":0}}', {"fast": (5, 0)}),
        ('{"fast":{"totalBytes":5,"usedBytes":6}}', {"fast": (5, None)}),
        ('{"fast":{"totalBytes":5,"usedBytes":-1}}', {"fast": (5, None)}),
        ('{"fast":{"totalBytes":5,"usedBytes":true}}', {"fast": (5, None)}),
        ('{"fast":{"totalBytes":5,"usedBytes":[1]}}', {"fast": (5, None)}),
        ('{"fast":{"usedBytes":1}}', {}),
        ('{"fast":{"totalBytes":"5"}}', {}),
        (f'{{"fast":1{"0" * 400}}}', {}),
        (f'{{"fast":1{"0" * 5000}}}', {}),
        ('{"fast":1e400}', {}),
        ('{"fast":null,"slow":-1,"other":true,"":0}', {}),
        ("[1]", {}),
        ("no JSON", {}),
        ("[" * 100_000, {}),
        ("", {}),
    ],
)
def test_what_is_no_such_note_says_nothing(
    told: str, read: dict[str, tuple[int, int | None]]
) -> None:
    assert pools_in(told) == read


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_no_note_ends_who_reads_it(value: object) -> None:
    for told in (value, {"fast": value}, {"fast": {"totalBytes": value, "usedBytes": value}}):
        for size in pools_in(json.dumps(told)).values():
            assert 0 < size.total_bytes < 2**63
            assert size.used_bytes is None or 0 <= size.used_bytes <= size.total_bytes


def test_how_full_a_pool_is_stands_in_one_object_alone() -> None:
    """However many classes it serves: it is written as rarely as can be."""
    fast = pool(name="fast", room=4 * GIB)
    fast = replace(fast, report=replace(fast.report, used_bytes=GIB))
    made = plan(facts(storage_class("b"), storage_class("a"), fast))
    assert made.sizes == {
        "a": {"fast": PoolSize(4 * GIB, GIB)},
        "b": {"fast": PoolSize(4 * GIB)},
    }
