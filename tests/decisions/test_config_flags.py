"""Tables of flags: what a parser that is made of one takes, gives and says."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from localvolume.config.flags.agent import AGENT_FLAGS
from localvolume.config.flags.controller import CONTROLLER_FLAGS
from localvolume.config.flags.table import Flag, add_flags, output, values

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "flags.md").read_text()


def _positive(text: str) -> int:
    if not text.isdigit():
        raise ValueError(f"{text!r} is not positive")
    return int(text)


TABLE = (
    Flag("--at-most", "N", "how many", _positive, "3"),
    Flag("--name", "NAME", "whose"),
    Flag("--path", "PATH", "where", lambda text: text.split(":"), repeated=True),
    Flag("--dry-run", "", "change nothing"),
    output("table", "json"),
)


def read(*words: str) -> dict[str, object]:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser, *TABLE)
    return values(parser.parse_args(words), TABLE)


def test_what_is_not_given_has_its_default() -> None:
    assert read() == {
        "at_most": 3,
        "name": None,
        "path": [],
        "dry_run": False,
        "output": "table",
    }
    assert read() == read(), "a list of one parsing is not that of the next"


def test_what_is_given_is_parsed() -> None:
    words = ["--at-most=5", "--name", "x", "--path=/a:/b", "--path=/c", "--dry-run", "-o", "json"]
    assert read(*words) == {
        "at_most": 5,
        "name": "x",
        "path": ["/a", "/b", "/c"],
        "dry_run": True,
        "output": "json",
    }
    assert read()["path"] == []


@pytest.mark.parametrize(
    ("word", "reason"),
    [("--at-most=-1", "'-1' is not positive"), ("--output=xml", "invalid choice: 'xml'")],
)
def test_a_wrong_value_says_why(word: str, reason: str) -> None:
    with pytest.raises(argparse.ArgumentError, match=reason):
        read(word)


def test_a_flag_that_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, Flag("--size", "BYTES", "how much", required=True))
    with pytest.raises(SystemExit):
        parser.parse_args([])
    assert "required: --size" in capsys.readouterr().err


def test_help_says_the_default() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, *TABLE)
    lines = " ".join(parser.format_help().split())
    for text in (
        "--at-most N how many (default 3)",
        "--name NAME whose --path PATH where",
        "--dry-run change nothing",
        "-o {table,json}, --output {table,json} how it is printed (default table)",
    ):
        assert text in lines


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        pytest.param(command, flag, id=f"{command} {flag.name}")
        for command, table in (("agent", AGENT_FLAGS), ("controller", CONTROLLER_FLAGS))
        for flag in table
    ],
)
def test_a_row_is_documented_and_its_default_is_read(command: str, flag: Flag) -> None:
    section = PAGE.partition(f"## localvolume {command}\n")[2].partition("\n## ")[0]
    assert f"| `{flag.name}`" in section
    assert flag.text in section
    assert not (flag.repeated and flag.default)
    if flag.default is not None:
        flag.parse(flag.default)
        assert f"{flag.text} (default `{flag.default}`)" in section


@pytest.mark.parametrize("table", [AGENT_FLAGS, CONTROLLER_FLAGS], ids=["agent", "controller"])
def test_no_flag_is_twice_in_a_table(table: tuple[Flag, ...]) -> None:
    fields = [flag.field for flag in table]
    assert len(set(fields)) == len(fields)
