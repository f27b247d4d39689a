"""Command lines: which are refused, what help calls the program, what the plugin runs."""

import tomllib
from pathlib import Path

import pytest

from localvolume.cli.main import kubectl, main


def test_the_plugin_is_a_script_of_the_package() -> None:
    root = Path(__file__).parents[2]
    scripts = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-localvolume"] == f"{kubectl.__module__}:{kubectl.__name__}"


@pytest.mark.parametrize("command", ["status", "why", "support-bundle"])
def test_help_names_the_program(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for program in ("localvolume", "kubectl localvolume"):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"], program=program)
        assert ended.value.code == 0
        assert f"usage: {program} {command}" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["--all", "--node", "n"], ["--node"]])
def test_whose_volumes_are_meant_must_be_said(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["remove-finalizers", *words])
    assert ended.value.code == 2
