"""Limits what the aliases of a YAML text repeat: a few lines of them can stand for gigabytes.

The parser makes no copies, but code that walks the nodes reads them once for each alias. So what
the aliases add is counted while the text is parsed, before anything is built from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import yaml

MOST: Final = 100_000
"""The most that all aliases of a text may add, in characters; each value counts as one more.
Configurations repeat a few thousand in practice; this many are read in well under a second."""


class Excessive(ValueError):
    """The aliases repeat too much; the message says where that was noticed."""


class Repeated:
    """Counts what is repeated, from the events of a text one by one."""

    def __init__(self) -> None:
        self._sizes: dict[str, int | None] = {}
        """The size of each anchored node; None while the node has not ended yet."""
        self._open: list[tuple[str | None, int]] = []
        """The collections around the event: the anchor of each, and its size so far."""
        self._added = 0

    def see(self, event: Any) -> None:
        """Count one event. Raises Excessive."""
        if isinstance(event, yaml.AliasEvent):
            self._grow(self._repeat(event))
        elif isinstance(event, yaml.ScalarEvent):
            self._ended(event.anchor, 1 + len(event.value))
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open.append((event.anchor, 1))
            if event.anchor:
                self._sizes[event.anchor] = None
        elif isinstance(event, yaml.CollectionEndEvent):
            self._ended(*self._open.pop())

    def _repeat(self, event: Any) -> int:
        # An alias without an anchor is left to the parser to refuse.
        size = self._sizes.get(event.anchor, 1)
        where = f"in line {event.start_mark.line + 1}"
        if size is None:
            raise Excessive(f'has an alias "*{event.anchor}" {where} within what it stands for')
        self._added += size
        if self._added > MOST:
            raise Excessive(
                f'repeats more than {MOST} characters by aliases, like "*{event.anchor}" {where}'
            )
        return size

    def _ended(self, anchor: str | None, size: int) -> None:
        if anchor:
            self._sizes[anchor] = size
        self._grow(size)

    def _grow(self, size: int) -> None:
        if self._open:
            anchor, before = self._open[-1]
            self._open[-1] = (anchor, before + size)


def refuse(events: Iterable[Any]) -> None:
    """Count all events of a text. Raises Excessive, and whatever the parser raises."""
    repeated = Repeated()
    for event in events:
        repeated.see(event)
