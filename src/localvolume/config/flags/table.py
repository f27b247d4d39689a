"""Flags as the rows of tables, from which parsers, --help and the documentation are made.

Flags that several commands share are here; the others are where they are used.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag; it takes no value if it has neither `metavar` nor `choices`.

    `name` may have a short form before it: "-o --output". `parse` raises ValueError, whose text
    says what is wrong with a value. `default` is written as on a command line, and shown after
    `text`. A `repeated` flag may be given several times: `parse` returns lists, and the value is
    all of them joined.
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
        """The name of its value once it is parsed."""
        return self.name.rpartition("--")[2].replace("-", "_")


KUBECONFIG: Final = Flag("--kubeconfig", "FILE", "how to reach the cluster")
DRY_RUN: Final = Flag("--dry-run", "", "say it and change nothing")


def output(*forms: str) -> Flag:
    """The flag for the form of the output; the first form is the default."""
    return Flag("-o --output", "", "how it is printed", choices=forms, default=forms[0])


def add_flags(parser: argparse.ArgumentParser, *table: Flag) -> None:
    """Add the flags to the parser."""
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
    """The parsed values of the flags of a table, by their fields."""
    return {flag.field: getattr(given, flag.field) for flag in table}


def _argument(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap a parser for argparse, which shows the text of ArgumentTypeError only."""

    def parse_argument(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse_argument
