"""Hook of mkdocs: on a phone, each row of a table with many columns is read from top to bottom.

Each cell then stands below the row's first one, with the name of its column before it; site.css
takes that name from the cell.
"""

from __future__ import annotations

import html
import itertools
import re
from typing import Any

#: Two columns fit a phone beside each other.
FEWEST = 3

_TABLE = re.compile(r"<table>(.*?)</table>", re.DOTALL)
_HEAD = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")


def on_page_content(html: str, **_: Any) -> str:
    """Called by mkdocs for each page's HTML."""
    return with_named_cells(html)


def with_named_cells(text: str) -> str:
    """The same page, with the columns' names on the cells of its wide tables."""
    return _TABLE.sub(_named, text)


def _named(table: re.Match[str]) -> str:
    names = [html.escape(html.unescape(_TAG.sub("", head))) for head in _HEAD.findall(table[1])]
    if len(names) < FEWEST:
        return table[0]
    # Markdown gives every row as many cells as there are columns.
    column = itertools.cycle(names)
    cells = re.sub(r"<td\b", lambda _: f'<td data-column="{next(column)}"', table[1])
    return f"<table data-wide>{cells}</table>"
