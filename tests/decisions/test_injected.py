"""What tests pace or make fail is given to our code as a parameter, not put in place of its names.

A name that is replaced by its path is bound to where it is: who moves it breaks tests that it does
not concern. The files that still do so are listed, and the list only gets shorter.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent

REMAINING = {
    "cluster/conftest.py",
    "cluster/test_disks_agent.py",
    "cluster/test_dynamic_errors.py",
    "cluster/test_jobs_switching.py",
    "cluster/test_orphans_meanwhile.py",
    "cluster/test_seeing_status.py",
    "host/test_flex_bindmount.py",
    "host/test_pool_ground.py",
    "kernel/inside/test_image_growing.py",
    "node/test_requirements.py",
}


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
    sources = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("*.py")}
    found = {name for name, path in sources.items() if replaced_by_path(path.read_text("utf-8"))}
    assert found - REMAINING == set(), "give it to the code under test as a parameter"
    assert REMAINING - found == set(), "take it off the list"
