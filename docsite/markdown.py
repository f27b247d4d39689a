"""Tables and cells of Markdown, the same for every page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

GENERATED = "<!-- Written by `make reference` from the code: edit docsite/, not this file. -->"

_VALUE = re.compile(r"[^\s|`]+")


class Missing(Exception):
    """Something of the code is not described: add it where the message says."""


def text(words: str) -> str:
    """Plain words in a cell: nothing in them is Markdown or HTML."""
    escaped = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([|*\[\]])", r"\\\1", escaped)


def code(words: str) -> str:
    """Words as they are typed."""
    if "|" in words or "`" in words:
        raise ValueError(f"{words!r} cannot stand in a cell")
    return f"`{words}`" if words else ""


def value(words: str) -> str:
    """A default: typed as it is where it is one word, else said."""
    if words in ("required", "none"):
        return words
    return code(words) if _VALUE.fullmatch(words) else text(words)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; every cell is Markdown already."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def page(title: str, *parts: str) -> str:
    """A whole page, with the note that it is written by a program."""
    return "\n\n".join([f"# {title}", GENERATED, *(part.strip("\n") for part in parts)]) + "\n"
