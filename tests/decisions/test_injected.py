"""What tests pace or make fail is given to our code as a parameter, not put in place of its names.

A name that is replaced is bound to where it is: who moves it breaks tests that it does not concern.
What is not ours may be replaced, such as a system call that is to fail. Files that still replace
what belongs to an object of ours are listed with the reason, and the list only gets shorter.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent

#: Top-level packages that are not ours; what a test defines itself, or is given, may be ours.
OTHERS = {*sys.stdlib_module_names, "asyncinotify"}

_MISTAKE = "a mistake of ours, made to see that it is noticed or harms nothing else"
_DEATH = "our process dies there, between any two of its lines"
_ORDER = "our own steps come in an order that chance seldom brings"
_OLDER = "what an older kernel or C library does, which no machine of ours has"
_ELSEWHERE = "a machine that this one is not"
#: What nobody could hand in: each file with its reason.
REMAINING = {
    "cluster/test_capacity_objects.py": _MISTAKE,
    "cluster/test_dynamic_stale_looks.py": _ORDER,
    "cluster/test_hangs.py": _MISTAKE,
    "cluster/test_node_taint.py": _MISTAKE,
    "decisions/test_until.py": _ELSEWHERE,
    "faults/disks_life.py": _DEATH,
    "faults/test_mistakes.py": _MISTAKE,
    "faults/zygote.py": _DEATH,
    "host/test_beneath.py": _OLDER,
    "host/test_blockdev.py": _ELSEWHERE,
    "host/test_deletion.py": _OLDER,
    "host/test_pool_directories.py": _OLDER,
    "kernel/inside/test_flex_lvm_pools.py": _ORDER,
    "kernel/inside/test_lvm_store_kill.py": _MISTAKE,
    "kernel/inside/test_projectquota.py": _OLDER,
}


def replacements(source: str) -> Iterator[ast.Call]:
    """Every call of `setattr`, with or without an object before it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
            if name == "setattr":
                yield node


def replaced_by_path(source: str) -> list[int]:
    """The lines that replace something by the path of its name: `setattr` of two arguments."""
    return [
        call.lineno
        for call in replacements(source)
        if isinstance(call.func, ast.Attribute) and len(call.args) + len(call.keywords) == 2
    ]


def replaced_in_ours(source: str) -> list[int]:
    """The lines that replace what belongs to a module or class that is not known as another's."""
    packages: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            packages |= {one.asname or one.name.partition(".")[0]: one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            packages |= {one.asname or one.name: module for one in node.names}
    found = []
    for call in replacements(source):
        if len(call.args) == 3:
            owner = ast.unparse(call.args[0]).partition(".")[0]
            if packages.get(owner, "").partition(".")[0] not in OTHERS:
                found.append(call.lineno)
    return found


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
        'monkeypatch.setattr("localvolume.host.lvm.commands.SECONDS", 1)',
        'monkeypatch.setattr(\n    f"localvolume.{name}", value\n)',
        "with monkeypatch.context() as patch:\n    patch.setattr(path, value=1)",
    ],
)
def test_a_replacement_by_path_is_found(source: str) -> None:
    assert len(replaced_by_path(source)) == 1


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('from localvolume.host import lvm\nmonkeypatch.setattr(lvm, "SECONDS", 1)', 1),
        ('from localvolume.host.lvm.commands import Lvm\npatch.setattr(Lvm, "run", run)', 1),
        ('import localvolume.host\npatch.setattr(localvolume.host.lvm.commands, "SECONDS", 1)', 1),
        ('from .support import Lab\npatch.setattr(Lab, "run", run)', 1),
        ('for module in modules:\n    setattr(module, "run", run)', 1),
        ('import os\npatch.setattr(os, "read", run)', 0),
        ('import os.path as place\npatch.setattr(place, "join", run)', 0),
        ('from asyncinotify import Inotify\npatch.setattr(Inotify, "add_watch", run)', 0),
    ],
)
def test_a_replacement_in_ours_is_found(source: str, found: int) -> None:
    assert len(replaced_in_ours(source)) == found


def test_nothing_of_ours_is_replaced_by_its_path() -> None:
    found = {name for name, source in sources().items() if replaced_by_path(source)}
    assert found == set(), "give it to the code under test as a parameter"


def test_nothing_more_of_ours_is_replaced_in_what_it_belongs_to() -> None:
    found = {name for name, source in sources().items() if replaced_in_ours(source)}
    assert found - REMAINING.keys() == set(), "give it to the code under test as a parameter"
    assert REMAINING.keys() - found == set(), "take it off the list"
