"""What lies in a pool and no record explains: it is listed, and never touched."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Final

from localvolume.backends.model import OURS, Record
from localvolume.backends.pool.layout import (
    IMAGES,
    LOST_AND_FOUND,
    MAKING,
    TRASH,
    parents_of_all,
    trash_name,
)
from localvolume.host.tree.trees import list_names, opened

MOST: Final = 1000
"""More are not listed: a directory full of foreign files is one mistake, not a million."""


def orphans(
    pool: int, records: Mapping[str, Record], unreadable: Collection[str] = ()
) -> list[str]:
    """The names below the pool that no record explains, sorted, at most MOST of them.

    If a volume lies in a nested directory (`ns/claim`), this looks into those above it. A name that
    an unreadable record could stand for counts as explained. Raises OSError.
    """
    return sorted(islice(_all(pool, records, frozenset(unreadable)), MOST))


def _all(pool: int, records: Mapping[str, Record], unreadable: frozenset[str]) -> Iterator[str]:
    placed = {
        record.directory
        for record in records.values()
        if record.directory and record.state != "removed"
    }
    # Including those of removed volumes: what is left of them goes when the volumes are purged.
    parents = parents_of_all(records.values())
    yield from _below(pool, "", placed | unreadable, parents)
    trash = {record.trash or trash_name(record) for record in records.values()}
    for name in _names(pool, f"{OURS}/{TRASH}"):
        if name not in trash and name.rpartition(".")[0] not in unreadable:
            yield f"{OURS}/{TRASH}/{name}"
    begun = {name for name, record in records.items() if record.state == "making"} | unreadable
    for name in _names(pool, f"{OURS}/{MAKING}"):
        if name not in begun:
            yield f"{OURS}/{MAKING}/{name}"
    # The backend may keep more than one file for an image while it works on it.
    images = {*records, *unreadable}
    for name in _names(pool, f"{OURS}/{IMAGES}"):
        if name.rpartition(".img")[0] not in images:
            yield f"{OURS}/{IMAGES}/{name}"


def _below(
    pool: int, directory: str, explained: Collection[str], parents: Collection[str]
) -> Iterator[str]:
    for name in _names(pool, directory):
        path = f"{directory}/{name}" if directory else name
        if path in (OURS, LOST_AND_FOUND) or path in explained:
            continue
        if path in parents:
            yield from _below(pool, path, explained, parents)
        else:
            yield path


def _names(pool: int, directory: str) -> list[str]:
    try:
        if not directory:
            return [_printable(name) for name in list_names(pool)]
        with opened(pool, directory) as fd:
            return [_printable(name) for name in list_names(fd)]
    except (FileNotFoundError, NotADirectoryError):
        # Gone meanwhile, or a file instead of a parent: then nothing lies in it.
        return []


def _printable(name: str) -> str:
    """A name as text that can be written anywhere; only names that are not UTF-8 change."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
