"""Tables are styled on a terminal, and plain for whoever asks for it."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.support_demo import running

ESCAPE = "\x1b["


@pytest.fixture
def table(tmp_path: Path) -> Sequence[str]:
    """A command that prints a table, without a cluster."""
    (tmp_path / "disks" / "one").mkdir(parents=True)
    config = tmp_path / "config"
    config.mkdir()
    disks = tmp_path / "disks"
    (config / "storageClassMap").write_text(f"fast:\n  hostDir: {disks}\n  mountDir: {disks}\n")
    plan = ("plan", "--offline", "--node", "x", "--config", str(config))
    return (sys.executable, "-m", "localvolume", *plan)


def _printed(where: Path, table: Sequence[str], *, columns: int, env: dict[str, str]) -> str:
    home = where / "home"
    home.mkdir()
    with running(home, argv=table, columns=columns, env=env) as run:
        assert run.end() == 0, run.output
    assert "VERDICT" in run.output
    return run.output


def test_a_terminal_has_bold_titles(tmp_path: Path, table: Sequence[str]) -> None:
    assert f"{ESCAPE}1m" in _printed(tmp_path, table, columns=120, env={})


@pytest.mark.parametrize(
    ("columns", "env"),
    [
        pytest.param(120, {"NO_COLOR": "1"}, id="no-color"),
        # https://no-color.org: whatever its value is.
        pytest.param(120, {"NO_COLOR": "0", "FORCE_COLOR": "1"}, id="whatever-its-value"),
        pytest.param(120, {"TERM": "dumb"}, id="dumb"),
        pytest.param(0, {}, id="pipe"),
    ],
)
def test_plain_text(
    tmp_path: Path, table: Sequence[str], columns: int, env: dict[str, str]
) -> None:
    if env.get("TERM") == "dumb":
        table = ("env", "TERM=dumb", *table)
    assert ESCAPE not in _printed(tmp_path, table, columns=columns, env=env)
