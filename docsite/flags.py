"""The page of commands, flags and environment variables."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module

from docsite import environment
from docsite.markdown import Missing, code, page, table, text
from localvolume.cli.main import COMMANDS, module_of

_UNSAID = {
    ("", "--log-format"): "how log lines are written: for people, or one JSON object each",
    ("", "--log-level"): "from which level on records are logged",
    ("", "--output"): "how it is printed",
    ("check-config", "files"): "the files or directories to read",
    ("clean", "--kind"): "what the volume is",
    ("clean", "--volume-mode"): "how it is offered",
    ("clean", "--device"): "the device it must still be",
    ("clean", "--size"): "the size it must still have",
    ("clean", "--identity"): "what it must still be: the annotation `localvolume.dev/identity`",
    ("clean", "--timeout"): "how long it may take (default: as long as it takes)",
}
"""What is said of a flag whose own help says nothing; under "" for every command."""

_INTRODUCTION = """\
`localvolume COMMAND --help` says the same. Durations are Go's, like `1h30m`. Exit status: 0 well,
1 not well, 2 not understood.
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
    return page("Commands and flags", _INTRODUCTION, *parts, environment.section())


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
    longest = max(action.option_strings, key=len, default="")
    said = (
        action.help or _UNSAID.get((command, longest or action.dest)) or _UNSAID.get(("", longest))
    )
    if not said:
        what = longest or action.dest
        raise Missing(f"{what} of localvolume {command} has no help: add help= where it is added")
    words = said if "`" in said else text(said)
    default = action.default
    if isinstance(default, str) and default and "default" not in said:
        words += f" (default {code(default)})"
    if action.required and action.option_strings:
        words += " (required)"
    return flag, words


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:].removesuffix('.')}."
