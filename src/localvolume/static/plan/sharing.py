"""Finding what has data in common: one index for devices seen now and for identities on record."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Generic, TypeVar

T = TypeVar("T")


class Sharing(Generic[T]):
    """Things by an anchor (a device, a UUID) and the directory in it that each one has.

    A thousand bind mounts of one disk are common: every look-up costs the depth of a path and
    what it finds, never the number of things.
    """

    def __init__(self) -> None:
        self._at: dict[tuple[str, str], list[T]] = defaultdict(list)
        self._beneath: dict[tuple[str, str], list[T]] = defaultdict(list)

    def add(self, anchor: str, directory: str, thing: T) -> None:
        self._at[anchor, directory].append(thing)
        for parent in _parents(directory):
            self._beneath[anchor, parent].append(thing)

    def find(self, anchor: str, directory: str) -> Iterator[T]:
        """What has that directory, one within it, or one around it; in no particular order."""
        yield from self._at.get((anchor, directory), ())
        yield from self._beneath.get((anchor, directory), ())
        for parent in _parents(directory):
            yield from self._at.get((anchor, parent), ())


@lru_cache(maxsize=4096)
def _parents(directory: str) -> tuple[str, ...]:
    if directory in ("/", ""):
        return ()
    parent = posixpath.dirname(directory)
    return (parent, *_parents(parent))
