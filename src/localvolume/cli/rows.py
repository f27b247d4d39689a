"""How rows are printed: a table for people, JSON or YAML for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml
from rich.table import Table
from rich.text import Text

from localvolume.cli.output.console import table_console
from localvolume.volumes.capacity import published_bytes, quantity

LONGEST: Final = 4096
"""How many characters of a cell are printed: as many as a path may have."""


def shortened(text: str, longest: int) -> str:
    """The text, or its beginning and how long it is: a tenant's Event may have a megabyte."""
    return text if len(text) <= longest else f"{text[:longest]} … ({len(text)} characters)"


def printable(text: str) -> str:
    """Escapes the text: a path may hold any bytes, and a newline must not look like two rows.

    JSON in an annotation may hold surrogates that stand for no byte.
    """
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte, as the functions of `os` write it
        return f"\\x{ord(character) & 0xFF:02x}"
    return character.encode("unicode_escape").decode()


def print_columns(
    titles: Sequence[str], rows: Sequence[Sequence[str | Text]], *, none: str, stderr: bool = False
) -> None:
    """Prints a table, or the sentence `none` if there are no rows. A Text is a drawing of ours."""
    if not rows:
        print(none, file=sys.stderr if stderr else sys.stdout)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else _drawn(cell) for cell in row))
    table_console(stderr=stderr).print(table)


def _drawn(cell: str) -> Text:
    return Text(printable(shortened(cell, LONGEST)))


def _print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
        spec = row.get("manifest", {}).get("spec", {})
        return (
            row["class"],
            row["path"] or _instead(row),
            row["verdict"],
            row.get("persistentVolume", ""),
            _capacity(row),
            spec.get("volumeMode", "") or row.get("volumeMode", ""),
            row["reason"],
        )

    print_columns(
        ("CLASS", "PATH", "VERDICT", "PV", "CAPACITY", "MODE", "REASON"),
        [cells(row) for row in rows],
        none="no entries: the discovery directories are empty",
    )


def _capacity(row: Mapping[str, Any]) -> str:
    """What a PersistentVolume of it has, or what its pool can still promise."""
    found = row.get("capacityBytes", row.get("roomBytes"))
    if found is None:
        return ""
    is_entry = "kind" in row
    return quantity(published_bytes(found) if is_entry else found)


_INSTEAD: Final = {
    "snapshotContent": "snapshot content",
    "groupSnapshotContent": "group snapshot content",
    "claim": "claim",
    "persistentVolume": "volume",
    "pool": "pool",
}


def _instead(row: Mapping[str, Any]) -> str:
    """What a row is about that has no path."""
    if row.get("place"):
        return f"pool {row['pool']}: {row['place']}"
    return next((f"{what} {row[key]}" for key, what in _INSTEAD.items() if row.get(key)), "")


def print_value(value: Any, form: str) -> None:
    """Prints what programs read: `form` is "json" or "yaml".

    Both escape all that is not ASCII: what a tenant wrote may steer a terminal.
    """
    if form == "json":
        print(json.dumps(value, indent=2))
    else:
        print(yaml.safe_dump(value, sort_keys=False), end="")


def print_rows(rows: Sequence[Mapping[str, Any]], form: str) -> None:
    """Prints rows of `localvolume plan`: `form` is "table", "json" or "yaml"."""
    if form == "table":
        _print_table(rows)
    else:
        print_value(list(rows), form)
