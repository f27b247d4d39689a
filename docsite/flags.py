"""The page of commands, flags and environment variables."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from importlib import import_module

from docsite import environment
from docsite.markdown import Missing, code, page, table, text
from localvolume.cli.main import COMMANDS, module_of
from localvolume.cli.output.exits import MEANINGS

_DEFAULT = re.compile(r"\(default ([^\s`)]+)\)$")

_INTRODUCTION = """\
`localvolume COMMAND --help` says the same. Durations are Go's, like `1h30m`.
"""


def render() -> str:
    """docs/reference/flags.md. Raises Missing."""
    parts = []
    for name in COMMANDS:
        parser = _parser(name)
        rows = [_row(name, action) for action in _actions(parser)]
        lines = [f"## localvolume {name}", text(_sentence(parser.description or COMMANDS[name]))]
        if rows:
            lines.append(table(("flag", "meaning"), rows).rstrip("\n"))
        if parser.epilog:
            lines.append(text(parser.epilog))
        parts.append("\n\n".join(lines))
    return page("Commands and flags", _INTRODUCTION, _exits(), *parts, environment.section())


def _exits() -> str:
    """The table of exit statuses, the same for all commands."""
    rows = [(str(status), meaning) for status, meaning in MEANINGS.items()]
    return "## Exit statuses\n\n" + table(("status", "meaning"), rows).rstrip("\n")


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"localvolume {name}")
    import_module(module_of(name)).add_arguments(parser)
    return parser


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    return (one for one in parser._actions if not isinstance(one, argparse._HelpAction))


def _row(command: str, action: argparse.Action) -> tuple[str, str]:
    value = action.metavar or ("" if action.nargs == 0 else action.dest.upper())
    if action.choices is not None and not action.metavar:
        value = " or ".join(str(choice) for choice in action.choices)
    names = ", ".join(code(one) for one in action.option_strings)
    flag = " ".join(part for part in (names, code(str(value)) if value else "") if part)
    if not action.help:
        what = max(action.option_strings, key=len, default=action.dest)
        raise Missing(f"{what} of localvolume {command} has no help: add it where it is added")
    words = action.help if "`" in action.help else text(action.help)
    words = _DEFAULT.sub(r"(default `\1`)", words)
    if action.required and action.option_strings:
        words += " (required)"
    return flag, words


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:].removesuffix('.')}."
