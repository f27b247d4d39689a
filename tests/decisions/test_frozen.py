"""Nothing in the suite calls sync(2): tests freeze filesystems, and it waits for all of them. Nor
do the commands of a page, which tests run, and readers beside a disk that hangs.

While it waits for a device it lets nobody open it, not even who is to thaw the filesystem below.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
PAGES = TESTS.parent / "docs"
#: Programs that call it, but for these options.
UNLESS = {"sync": {"-f", "--file-system"}, "sfdisk": {"--no-tell-kernel"}}


def synced(source: str) -> list[int]:
    """The lines that call it, or start a program that would."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            words, called = node.args, ast.unparse(node.func)
            if called == "os.sync":
                found.append(node.lineno)
            elif called.endswith("needs"):
                continue
        elif isinstance(node, (ast.List, ast.Tuple)):
            words = node.elts
        else:
            continue
        texts = [one.value for one in words if isinstance(one, ast.Constant)]
        program = texts[0] if texts and len(words) > 1 else None
        if isinstance(program, str) and not UNLESS.get(program, {program}) & {*map(str, texts)}:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("os.sync()", 1),
        ('command("sfdisk", "-q", disk.path)', 1),
        ('subprocess.run(["sync", "/"], check=True)', 1),
        ('command(*("sfdisk", "--no-reread"), path)', 1),
        ('command("sfdisk", "-q", "--no-tell-kernel", disk.path)', 0),
        ('command("sync", "-f", where)', 0),
        ('pytest.mark.needs("root", "sfdisk")\nneeds("sfdisk", "root")', 0),
    ],
)
def test_what_calls_it_is_found(source: str, found: int) -> None:
    assert len(synced(source)) == found


def test_nothing_calls_it_beside_other_tests() -> None:
    """In a guest there is no other test."""
    paths = [path for path in TESTS.rglob("*.py") if path.parent.name != "inside"]
    assert len(paths) > 300
    found = {path.relative_to(TESTS): synced(path.read_text("utf-8")) for path in paths}
    assert {path: lines for path, lines in found.items() if lines} == {}


_FENCED = re.compile(r"^ *```\w*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
_SYNC = re.compile(r"(?<![\w.-])sync(?![\w-])(?! (?:-f|--file-system) )")


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ('[sh, -ec, "cp -a /old/. /new/ && sync && diff"]', True),
        ("sync /new", True),
        ("sync -f /new", False),
        ("localvolume agent --config-sync-period 1m", False),
    ],
)
def test_what_calls_it_in_a_page_is_found(command: str, found: bool) -> None:
    assert bool(_SYNC.search(command)) is found


def test_no_command_of_a_page_calls_it() -> None:
    pages = {path: _FENCED.findall(path.read_text("utf-8")) for path in PAGES.rglob("*.md")}
    assert sum(map(len, pages.values())) > 50
    assert not [path for path, blocks in pages.items() if any(map(_SYNC.search, blocks))]
