"""The page as one HTML document that asks nobody for anything but, when it is live, its server.

Style and scripts are inline and named by their hashes in a Content-Security-Policy, so that nothing
else can run: neither what a tenant wrote into a name nor what came in between.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

_SCRIPTS: Final = ("vendor/d3-selection.min.js", "vendor/d3-hierarchy.min.js")
_OWN: Final = ("words.js", "treemap.js", "lists.js", "page.js")


def document(data: Mapping[str, Any] | None, *, every: float | None = None) -> str:
    """The whole page. `every`: it is live, and asks its server that often, in seconds.

    Without `data` it is empty until its server has answered.
    """
    style = _file("page.css")
    content_policy = policy(live=every is not None)
    notes = "\n".join(f"  {line}".rstrip() for line in _file("vendor/LICENSE.d3").splitlines())
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{content_policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            '<meta name="color-scheme" content="light dark">',
            '<link rel="icon" href="data:,">',
            "<title>Local volumes</title>",
            f"<!-- This page contains d3-selection and d3-hierarchy:\n{notes}\n-->",
            f"<style>{style}</style>",
            "</head>",
            _file("body.html"),
            f'<script type="application/json" id="data">{embedded(data)}</script>',
            f'<script type="application/json" id="live">{embedded({"every": every})}</script>',
            *(f"<script>{script}</script>" for script in _scripts()),
            "</html>",
            "",
        )
    )


def embedded(data: Any) -> str:
    """JSON that stays data inside a script element, and in every reader of JavaScript."""
    text = json.dumps(data, separators=(",", ":"))
    # json.dumps has already escaped all that is not ASCII, U+2028 too.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def policy(*, live: bool) -> str:
    """The Content-Security-Policy: our own style and scripts, and nothing else."""
    asks = "'self'" if live else "'none'"
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(_hash, _scripts()))}",
            f"style-src {_hash(_file('page.css'))}",
            "img-src data:",
            f"connect-src {asks}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _scripts() -> list[str]:
    return [*map(_file, _SCRIPTS), "\n".join(map(_file, _OWN))]


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
