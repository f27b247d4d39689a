"""Each line of tests/attacks/lines.toml names tests that there are; each attack is in a line."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path

import pytest

from tests.decisions.test_behaviours import functions

ATTACKS = Path(__file__).parents[1] / "attacks"
#: How many lines the list has of each letter.
LISTED = {"S": 18, "D": 15, "E": 11, "K": 8, "T": 10}


@functools.cache
def lines() -> dict[str, list[str]]:
    found: dict[str, list[str]] = tomllib.loads((ATTACKS / "lines.toml").read_text())
    return found


@pytest.mark.parametrize("line", lines())
def test_a_line_of_the_list_names_tests_that_there_are(line: str) -> None:
    assert 1 <= int(line[1:]) <= LISTED[line[0]]
    assert lines()[line]
    for named in lines()[line]:
        assert any(one == named or one.startswith(f"{named}::") for one in functions()), named


def test_each_file_of_attacks_stands_in_a_line() -> None:
    named = {one.partition("::")[0].rpartition("/")[2] for ones in lines().values() for one in ones}
    assert {path.name for path in ATTACKS.glob("test_*.py")} <= named
