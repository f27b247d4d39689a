"""Hook of mkdocs: where names may go to the next line, and where they may not.

A browser breaks a line after any hyphen, so a flag loses its dashes. It breaks none inside a long
name, so one key makes a column of a table as wide as itself.
"""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"<code>.*?</code>")  # of one line: in a sentence or a cell
_TEXT = re.compile(r"(?<=>)[^<]+(?=<)")
_CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_LONG = re.compile(r"\S{18,}")
# After what divides a name, and before its next capital.
_JOINT = re.compile(r"(?<=\w[/_:=,])(?=[\w{\[])|(?<=[a-z])(?=[A-Z])")


def on_page_content(html: str, **_: Any) -> str:
    """Called by mkdocs for each page's HTML."""
    return with_breaks(html)


def with_breaks(html: str) -> str:
    """The same text, with flags kept whole, and long names in tables divided at their joints."""
    html = _CELL.sub(lambda cell: _TEXT.sub(_divided, cell[0]), html)
    return _CODE.sub(_whole, html)


def _divided(text: re.Match[str]) -> str:
    return _LONG.sub(lambda name: _JOINT.sub("<wbr>", name[0]), text[0])


def _whole(code: re.Match[str]) -> str:
    return _FLAG.sub(r'<span class="flag">\g<0></span>', code[0])
