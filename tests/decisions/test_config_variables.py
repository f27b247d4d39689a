"""The table of environment variables: every row is documented, and nothing is read beside it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from localvolume.cli.main import COMMANDS
from localvolume.config import variables
from localvolume.config.variables import VARIABLES, Variable

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src" / "localvolume"
PAGE = (REPOSITORY / "docs" / "reference" / "flags.md").read_text()

NOT_OURS = {
    "kube/access/auth.py": "what every client of Kubernetes heeds: KUBECONFIG, HOME and proxies",
    "kube/http/lean.py": "set for a library while that is imported",
    "process/endpoints.py": "WSGI's environ, which is that of a request",
}
_READ = re.compile(
    r"\benviron\b(?:\.(?:get|pop|setdefault|keys)\(|\[)|\bin (?:os\.)?environ\b|getenv"
)


def faults(place: str, text: str) -> list[str]:
    """The lines that read a variable, or name or make one, beside the table."""
    found = [line.strip() for line in text.splitlines() if _READ.search(line)]
    names = {one.name for one in VARIABLES}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and node.value in names:
            found.append(ast.unparse(node))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Variable":
            found.append(ast.unparse(node))
    return [f"{place}: {one}" for one in found]


def test_every_variable_is_read_through_the_table() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        if place != "config/variables.py" and place not in NOT_OURS:
            found += faults(place, path.read_text())
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        'os.environ.get("NEW")',
        "os.environ[NAME]",
        '"NEW" in environ',
        'os.getenv("NEW")',
        'node = "MY_NODE_NAME"',
        'NEW = Variable("NEW", str, "all", "x", "what it is")',
    ],
)
def test_a_variable_beside_the_table_is_found(text: str) -> None:
    assert faults("x.py", text)


def test_the_table_has_them_all_by_their_names() -> None:
    constants = {name: one for name, one in vars(variables).items() if isinstance(one, Variable)}
    assert {one.name: one for one in VARIABLES} == constants
    assert len(VARIABLES) == len(constants)


@pytest.mark.parametrize("one", VARIABLES, ids=str)
def test_a_row_is_documented_and_its_values_are_read(one: Variable[Any]) -> None:
    assert f"| `{one}` | {one.readers} | {one.meaning}" in PAGE
    assert set(one.readers.split(", ")) <= COMMANDS.keys() | {"all", "cleaning commands"}
    assert one.read({one.name: one.example}) == one.parse(one.example)
    assert one.text({one.name: ""}) == one.text({}) == one.default
    if one.default:
        assert one.read({}) == one.parse(one.default)


def test_what_is_wrong_is_said_with_the_variable() -> None:
    with pytest.raises(ValueError, match=r"^KUBELET_DIR 'x' is no absolute path, and not \"none\""):
        variables.KUBELET_DIR.read({"KUBELET_DIR": "x"})
    assert variables.KUBELET_DIR.read({"KUBELET_DIR": "none"}) is None
    with pytest.raises(ValueError, match=r"^MY_NODE_NAME is not set"):
        variables.MY_NODE_NAME.read({})
