"""Which words may come next after those that are typed, by the commands' own parsers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Next:
    """What may be typed next: words, and whether files as well."""

    words: tuple[str, ...] = ()
    files: bool = False


def commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """The parsers of a parser's commands, by their names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    return {}


def is_directory(action: argparse.Action) -> bool:
    return action.metavar == "DIR"


def is_file(action: argparse.Action) -> bool:
    """Whether its value is the path of a file."""
    return action.metavar in ("FILE", "PATH")


def following(parser: argparse.ArgumentParser, typed: Sequence[str]) -> Next:
    """What may stand for the last word of `typed`, which may be begun or empty."""
    *before, begun = typed or [""]
    commands = commands_of(parser)
    chosen = next((word for word in before if word in commands), None)
    if chosen is None:
        return _beginning(begun, (*commands, *_flags(parser)))
    command = commands[chosen]
    if before and (action := command._option_string_actions.get(before[-1])) and _has_value(action):
        return _value(action, begun)
    if begun.startswith("-"):
        return _beginning(begun, _flags(command))
    found = [_value(one, begun) for one in command._actions if not one.option_strings]
    words = tuple(word for one in found for word in one.words)
    return Next(words, any(one.files for one in found))


def _flags(parser: argparse.ArgumentParser) -> tuple[str, ...]:
    return tuple(parser._option_string_actions)


def _has_value(action: argparse.Action) -> bool:
    return action.nargs != 0


def _value(action: argparse.Action, begun: str) -> Next:
    if action.choices is not None:
        return _beginning(begun, [str(one) for one in action.choices])
    return Next(files=is_file(action) or is_directory(action))


def _beginning(begun: str, words: Sequence[str]) -> Next:
    return Next(tuple(word for word in words if word.startswith(begun)))
