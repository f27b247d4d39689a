"""What tests pace or make fail is given to our code as a parameter, not put in place of its names.

A name that is replaced by its path is bound to where it is: who moves it breaks tests that it does
not concern.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent


def replaced_by_path(source: str) -> list[int]:
    """The lines that replace something by the path of its name: `setattr` of two arguments."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "setattr"
        and len(node.args) + len(node.keywords) == 2
    ]


@cache
def sources() -> dict[str, str]:
    """The text of every file of the tests that replaces anything, by its path."""
    texts = {path: path.read_text("utf-8") for path in TESTS.rglob("*.py")}
    return {
        path.relative_to(TESTS).as_posix(): text
        for path, text in texts.items()
        if "setattr" in text
    }


@pytest.mark.parametrize(
    "source",
    [
        'monkeypatch.setattr("localvolume.host.lvm.SECONDS", 1)',
        'monkeypatch.setattr(\n    f"localvolume.{name}", value\n)',
        "with monkeypatch.context() as patch:\n    patch.setattr(path, value=1)",
    ],
)
def test_a_replacement_is_found(source: str) -> None:
    assert len(replaced_by_path(source)) == 1


def test_nothing_of_ours_is_replaced_by_its_path() -> None:
    found = {name for name, source in sources().items() if replaced_by_path(source)}
    assert found == set(), "give it to the code under test as a parameter"
