"""Flags as the rows of tables, from which parsers, --help and the documentation are made.

Those that several commands have are here; the others are where they are used.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag; where it has neither `metavar` nor `choices` it takes no value.

    `name` may have a short form before it: "-o --output". What is wrong with a value is the text of
    the ValueError that `parse` raises. `default` is as somebody would type it, and `text` is shown
    with it. A `repeated` one may be given several times: what `parse` gives are lists, and the
    value is all of them together.
    """

    name: str
    metavar: str
    text: str
    parse: Callable[[str], Any] = str
    default: str | None = None
    choices: tuple[str, ...] = ()
    repeated: bool = False
    required: bool = False

    @property
    def field(self) -> str:
        """What its value is called once it is parsed."""
        return self.name.rpartition("--")[2].replace("-", "_")


KUBECONFIG: Final = Flag("--kubeconfig", "FILE", "how to reach the cluster")
DRY_RUN: Final = Flag("--dry-run", "", "say it and change nothing")


def output(*forms: str) -> Flag:
    """How it is printed: in the first form where nothing is said."""
    return Flag("-o --output", "", "how it is printed", choices=forms, default=forms[0])


def add_flags(parser: argparse.ArgumentParser, *table: Flag) -> None:
    """Have the parser take them."""
    for flag in table:
        text = f"{flag.text} (default {flag.default})" if flag.default else flag.text
        if not (flag.metavar or flag.choices):
            parser.add_argument(*flag.name.split(), action="store_true", help=text)
            continue
        parser.add_argument(
            *flag.name.split(),
            metavar=flag.metavar or None,
            type=_argument(flag.parse),
            default=[] if flag.repeated else flag.default,
            choices=flag.choices or None,
            action="extend" if flag.repeated else "store",
            required=flag.required,
            help=text,
        )


def values(given: argparse.Namespace, table: Iterable[Flag]) -> dict[str, Any]:
    """What was parsed for the flags of a table, by their fields."""
    return {flag.field: getattr(given, flag.field) for flag in table}


def _argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """The parser as argparse wants it: it shows the reason of this one exception only."""

    def parse_argument(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse_argument
