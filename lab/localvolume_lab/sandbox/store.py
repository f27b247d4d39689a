"""The store: every object in versions, and the history that watches and old lists read.

The counterpart of etcd and the watch cache. One counter numbers all writes; each kind keeps its
current objects and the latest changes. Bodies are never mutated once stored, so a version may be
handed out, encoded once and compared by identity.
"""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from localvolume_lab.sandbox.kinds import STORED, Resource

Body = dict[str, Any]
Key = tuple[str, str]
Encoder = msgspec.json.Encoder()


class Version:
    """One version of one object: the body, its number, and its JSON (made when first needed)."""

    __slots__ = ("_json", "body", "number")

    def __init__(self, body: Body, number: int) -> None:
        self.body = body
        self.number = number
        self._json: bytes | None = None

    @property
    def json(self) -> bytes:
        """The object as JSON."""
        if self._json is None:
            self._json = Encoder.encode(self.body)
        return self._json


class Change(NamedTuple):
    """One write. `new` of a deletion is the last state, numbered by the deletion itself."""

    number: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    key: Key
    new: Version
    old: Version | None


class TooOld(Exception):
    """The history no longer reaches back to `asked`; `oldest` is the first that would do."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")
        self.asked = asked
        self.oldest = oldest


class Watcher:
    """A place in the history of one kind: what has been read, and a bell for more."""

    __slots__ = ("bell", "cursor")

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.bell = asyncio.Event()


class Collection:
    """All objects of one kind."""

    def __init__(self, history_limit: int) -> None:
        self.items: dict[Key, Version] = {}
        self.order: list[Key] = []
        self.changes: list[Change] = []
        self.oldest = 0
        self.watchers: set[Watcher] = set()
        self._limit = history_limit

    def apply(self, change: Change) -> None:
        """Make a change current and wake who watches."""
        if change.type == "DELETED":
            del self.items[change.key]
            del self.order[bisect.bisect_left(self.order, change.key)]
        else:
            if change.type == "ADDED":
                bisect.insort(self.order, change.key)
            self.items[change.key] = change.new
        self.changes.append(change)
        if len(self.changes) > 2 * self._limit:
            self.oldest = self.changes[-self._limit - 1].number
            del self.changes[: -self._limit]
        for watcher in self.watchers:
            watcher.bell.set()

    def since(self, number: int) -> list[Change]:
        """The changes after `number`. Raises TooOld."""
        if number < self.oldest:
            raise TooOld(number, self.oldest)
        return self.changes[bisect.bisect_right(self.changes, number, key=_number) :]

    def forget(self, number: int) -> None:
        """Drop the history up to `number`. Who has read all of it does not miss it."""
        last = self.changes[-1].number if self.changes else self.oldest
        for watcher in self.watchers:
            if watcher.cursor >= last:
                watcher.cursor = max(watcher.cursor, number)
        self.changes.clear()
        self.oldest = number

    def at(self, number: int) -> list[Version]:
        """All objects as of `number`, by key: later changes undone. Raises TooOld."""
        undo = self.since(number)
        if not undo:
            return [self.items[key] for key in self.order]
        items = dict(self.items)
        for change in reversed(undo):
            if change.type == "ADDED":
                del items[change.key]
            elif change.old is not None:
                items[change.key] = change.old
        return [items[key] for key in sorted(items)]

    def __iter__(self) -> Iterator[Version]:
        return (self.items[key] for key in self.order)


def _number(change: Change) -> int:
    return change.number


class Store:
    """The kinds and the one counter. `history_limit`: changes kept per kind, at least."""

    def __init__(self, history_limit: int = 10_000) -> None:
        self.number = 1
        self._collections = {resource: Collection(history_limit) for resource in STORED}

    def __getitem__(self, resource: Resource) -> Collection:
        return self._collections[resource]

    def find(self, resource: Resource, name: str, namespace: str = "") -> Version | None:
        """The current version of one object, or None."""
        return self._collections[resource].items.get((namespace, name))

    def put(self, resource: Resource, body: Body) -> Version:
        """Store `body` (which the caller gives away) as a new version, numbered next."""
        collection = self._collections[resource]
        meta = body["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        old = collection.items.get(key)
        self.number += 1
        meta["resourceVersion"] = str(self.number)
        new = Version(body, self.number)
        collection.apply(Change(self.number, "ADDED" if old is None else "MODIFIED", key, new, old))
        return new

    def remove(self, resource: Resource, key: Key, last: Body | None = None) -> Version:
        """Delete an object; `last` replaces its final state, which watchers get to see."""
        collection = self._collections[resource]
        old = collection.items[key]
        self.number += 1
        body = dict(last if last is not None else old.body)
        body["metadata"] = {**body["metadata"], "resourceVersion": str(self.number)}
        final = Version(body, self.number)
        collection.apply(Change(self.number, "DELETED", key, final, old))
        return final

    def compact(self) -> None:
        """Forget all history, as etcd and the watch cache do in time: older reads get 410."""
        self.number += 1
        for collection in self._collections.values():
            collection.forget(self.number)
