"""Each row of tests/behaviours.toml names tests that there are; who names a row is in it."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
#: The cases of each list that is held to be complete, by the letters of their ids.
CASES = {
    "L": range(1, 104),
    "R": range(33, 47),
    "O": range(23, 43),
    "E": range(1, 48),
    "E-FV-": range(1, 57),
    "W-": range(1, 39),
}
#: There is no fifth.
DEFECTS = {1, 2, 3, 4, *range(6, 15)}

_ID = re.compile(r"(?<![\w-])([LROE]|E-FV-|W-)(\d{2,3})\b(?: to \1(\d{2,3})\b)?")
_ID_IN_A_NAME = re.compile(r"(?:^|_)[a-z]\d{2,3}(?:_|$)")


class Behaviour(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A row: what is so, or, of a defect, what is wrong with the source."""

    id: str
    source: str
    says: str
    tests: tuple[str, ...]
    differs: bool = False
    not_here: str = ""


@functools.cache
def behaviours() -> list[Behaviour]:
    data = tomllib.loads((TESTS / "behaviours.toml").read_text())
    return msgspec.convert(data["behaviour"], list[Behaviour])


@functools.cache
def functions() -> dict[str, str]:
    """The test functions of the suite, by the ids that pytest knows them by, and their docstrings.

    They are read, not imported: some can be imported in a guest only.
    """
    return {
        "::".join((str(file.relative_to(ROOT)), *names)): said
        for file in sorted(TESTS.rglob("test_*.py"))
        for names, said in _within(ast.parse(file.read_text()))
    }


def _within(node: ast.Module | ast.ClassDef) -> Iterator[tuple[tuple[str, ...], str]]:
    for one in node.body:
        if isinstance(one, ast.ClassDef):
            yield from (((one.name, *names), said) for names, said in _within(one))
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name[:5] == "test_":
            yield (one.name,), ast.get_docstring(one) or ""


def named_in(said: str) -> Iterator[str]:
    """The behaviours that a docstring names; "O31 to O37" are seven."""
    for letters, first, last in _ID.findall(said):
        for number in range(int(first), int(last or first) + 1):
            yield f"{letters}{number:02}"


def test_every_case_and_every_defect_has_a_row_of_its_own() -> None:
    ids = [one.id for one in behaviours()]
    assert [one for one, count in Counter(ids).items() if count > 1] == []
    cases = [one for one in ids if not one.startswith("defect-")]
    assert sorted(cases) == sorted(
        f"{letters}{number:02}" for letters, numbers in CASES.items() for number in numbers
    )
    defects = [one.split("-") for one in ids if one.startswith("defect-")]
    assert {int(number) for _, number, *_ in defects} == DEFECTS


def test_every_row_names_tests_that_there_are_or_why_there_are_none() -> None:
    missing = [
        f"{one.id}: {test}" for one in behaviours() for test in one.tests if test not in functions()
    ]
    assert missing == []
    assert [one.id for one in behaviours() if bool(one.tests) is bool(one.not_here)] == []
    assert [one.id for one in behaviours() if len(set(one.tests)) != len(one.tests)] == []


def test_every_row_says_its_behaviour_in_one_sentence() -> None:
    odd = [one.id for one in behaviours() if not re.fullmatch(r"[A-Z\d].*[^.]\.", one.says)]
    assert odd == []
    assert [one.id for one in behaviours() if not one.source] == []


def test_a_behaviour_that_a_test_names_has_that_test_in_its_row() -> None:
    """Who reads the test finds the behaviour, and nobody finds another one's."""
    known = {(one.id, test) for one in behaviours() for test in one.tests}
    found = {(one, test) for test, said in functions().items() for one in named_in(said)}
    assert sorted(found - known) == []
    assert found, "none is named anywhere"


def test_a_tests_name_says_what_is_so_and_no_number_of_it() -> None:
    numbered = [one for one in functions() if _ID_IN_A_NAME.search(one.rpartition("::")[2])]
    assert numbered == []
