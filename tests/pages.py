"""The pages of docs/ as a reader uses them: what is to be typed, and what is a file."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
MIGRATE = REPOSITORY / "docs" / "migrate"

_BLOCK = re.compile(r"^ *```(?P<kind>\w+)\n(?P<text>.*?)^ *```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# (?P<name>[\w.-]+\.yaml)\n")


@dataclass(frozen=True)
class Block:
    """One fenced block: `kind` is sh or yaml; `name` the file that it is, "" for commands."""

    kind: str
    name: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """All that a reader of the page types or writes into a file; what is printed (`console`) is
    left out. Raises ValueError for a block of another kind, and a yaml block that is no file:
    nobody would know what to do with it."""
    found = []
    for match in _BLOCK.finditer(page.read_text()):
        if match["kind"] == "console":
            continue
        text = textwrap.dedent(match["text"])
        name = ""
        if match["kind"] == "yaml" and (first := _FILE.match(text)):
            name = first["name"]
        if match["kind"] != "sh" and not name:
            raise ValueError(f"{page.name}: {match['kind']} that is no file: {text[:60]!r}")
        found.append(Block(match["kind"], name, text))
    return found
