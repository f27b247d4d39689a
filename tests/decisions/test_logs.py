"""How the processes log: a line per record, whatever is in it."""

import argparse
import json
import logging

import pytest

from localvolume.cli.logs import add_log_arguments, set_up


def _start(*words: str) -> None:
    parser = argparse.ArgumentParser()
    add_log_arguments(parser)
    set_up(parser.parse_args(list(words)))


def test_json_has_what_else_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    _start("--log-format", "json")
    logging.getLogger("some.module").warning("held: %s", "x", extra={"code": "not-empty"})
    line = json.loads(capsys.readouterr().err)
    assert line["level"] == "warning"
    assert line["logger"] == "some.module"
    assert line["message"] == "held: x"
    assert line["code"] == "not-empty"


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_name_that_is_not_utf8_costs_no_line(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _start("--log-format", form)
    logging.getLogger().error("path %s", b"/mnt/\xff\n".decode(errors="surrogateescape"))
    said = capsys.readouterr().err
    assert "path /mnt/" in said
    assert said.count("\n") == 1


def test_a_traceback_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    _start("--log-format", "json")
    try:
        int("no number")
    except ValueError:
        logging.getLogger().exception("it failed")
    line = json.loads(capsys.readouterr().err)
    assert "ValueError: invalid literal" in line["exception"]


@pytest.mark.parametrize(
    ("words", "said"),
    [((), False), (("--log-level", "debug"), True), (("-v", "4"), True), (("--v=2",), False)],
)
def test_the_level(words: tuple[str, ...], said: bool, capsys: pytest.CaptureFixture[str]) -> None:
    _start(*words)
    logging.getLogger().debug("a detail")
    assert ("a detail" in capsys.readouterr().err) is said
