"""What the tree promises beside the layers: no circles, and no directory too full to survey."""

from __future__ import annotations

from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]

MOST_MODULES = 20
"""In one directory; more are told apart by prefixes, and want a room."""


@pytest.mark.parametrize("package", ["localvolume", "localvolume_lab"])
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    """Also not by an import within a function: whoever moves one of them moves all."""
    graph = grimp.build_graph(package, cache_dir=None)
    # Raises CycleError, which names the modules.
    TopologicalSorter(
        {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    ).prepare()


@pytest.mark.parametrize("root", ["src", "lab"])
def test_no_directory_has_more_modules_than_one_can_survey(root: str) -> None:
    modules = Counter(
        module.parent for module in (ROOT / root).rglob("*.py") if not module.name.startswith("__")
    )
    assert {str(one.relative_to(ROOT)): n for one, n in modules.items() if n > MOST_MODULES} == {}


def test_the_layout_that_the_page_for_contributors_shows_is_the_trees() -> None:
    layout = (
        (ROOT / "docs/contributing.md")
        .read_text()
        .split("```\nsrc/localvolume/\n")[1]
        .split("```")[0]
    )
    shown, room = set(), Path("src/localvolume")
    for line in layout.splitlines():
        name = line[2:].split("/ ")[0] if line.startswith("  ") else ""
        if not line.startswith(" "):
            room = Path(line.split("/ ")[0].split(",")[0])
            shown.add(room)
        elif name and not name.startswith(" "):
            shown.add(room / name)
    there = {one.relative_to(ROOT) for one in (ROOT / "src/localvolume").iterdir() if one.is_dir()}
    assert {str(one) for one in there if one.name != "__pycache__"} <= {str(one) for one in shown}
    assert [str(one) for one in shown if not (ROOT / one).is_dir()] == []


def test_one_module_says_what_a_command_refuses() -> None:
    """So no command has another form for it: of the others, two write a table or a log there, and
    `main` what ends any command."""
    commands = ROOT / "src/localvolume/cli"
    found = {
        str(one.relative_to(commands))
        for one in commands.rglob("*.py")
        if "sys.stderr" in one.read_text()
    }
    assert found == {"output/refusal.py", "logs.py", "rows.py", "main.py"}
