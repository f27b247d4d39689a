"""Hook of mkdocs: what links to a file of the repository outside docs/ is no link on the site.

Read on the forge, such a link leads to the file; the site has only the pages. One to a file that
does not exist stays, for mkdocs to refuse it.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"

_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((?![a-z]+:)([^)#\s]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page's text."""
    return without_leaving(markdown, page.file.src_uri)


def without_leaving(markdown: str, page: str) -> str:
    """The text of `page` (a path below docs) with the words of such links alone."""

    def one(match: re.Match[str]) -> str:
        target = (DOCS / PurePosixPath(page).parent / match[2]).resolve()
        if target.is_relative_to(DOCS) or not target.exists():
            return match[0]
        return match[1]

    return _LINK.sub(one, markdown)
