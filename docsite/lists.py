"""Hook of mkdocs: what belongs to an item of a numbered list stays in it.

In our pages, as on the forge, it is indented as far as the item's own words: three columns for
most. Python-Markdown asks for four, and would end the list at the first block of code. It also
takes an item for a part of the paragraph right above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_ASKED = 4

_ITEM = re.compile(r"\d+\. +(?=\S)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page's text."""
    return with_whole_lists(markdown)


def with_whole_lists(markdown: str) -> str:
    """The same text, with numbered items apart and indented as Python-Markdown asks."""
    return "\n".join(_indented(markdown.split("\n")))


def _indented(lines: list[str]) -> Iterator[str]:
    words = 0  # the column of the item's words; 0 outside of lists
    code = apart = False
    for line in lines:
        if code or line.startswith("```"):
            code ^= line.startswith("```")
            words = 0
        elif item := _ITEM.match(line):
            if apart:
                yield ""
            words, apart = item.end(), False
        elif words and line and not line.startswith(" " * words):
            words = 0
        elif words and line:
            line = " " * max(_ASKED - words, 0) + line
        apart = words > 0 and (apart or not line)
        yield line
