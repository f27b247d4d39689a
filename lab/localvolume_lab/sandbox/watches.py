"""One watch: which events it sees, in which order, with bookmarks, until it ends.

Follows the real watch cache: without a resourceVersion (or with 0) the present state comes first as
ADDED events; a version the history no longer reaches gets one ERROR event with a 410 Status inside
a 200 answer; with a selector, an object that begins or ceases to match is ADDED or DELETED.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from localvolume_lab.sandbox.kinds import Resource
from localvolume_lab.sandbox.refusals import expired
from localvolume_lab.sandbox.rules.selectors import Match
from localvolume_lab.sandbox.store import Body, Change, Store, TooOld, Version, Watcher

BOOKMARK_SECONDS = 60.0
#: a bookmark also comes this long before the server ends a watch
BOOKMARK_BEFORE_END = 2.0

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


class Event(NamedTuple):
    """`version` is an object's; a bookmark or an error brings its own `body`."""

    type: EventType
    version: Version | None = None
    body: Body | None = None


@dataclass(frozen=True)
class WatchRequest:
    """What a client asked for. `since` None: start with the present state."""

    resource: Resource
    namespace: str
    match: Match
    since: int | None
    seconds: float
    bookmarks: bool = False
    initial_bookmark: bool = False
    bookmark_seconds: float = BOOKMARK_SECONDS

    def clock(self) -> float:
        """Loop time, seconds."""
        return asyncio.get_running_loop().time()


def _selected(request: WatchRequest, change: Change) -> Event | None:
    if request.namespace and change.key[0] != request.namespace:
        return None
    before = change.old is not None and request.match(change.old.body)
    after = change.type != "DELETED" and request.match(change.new.body)
    if after:
        return Event("MODIFIED" if before else "ADDED", change.new)
    if not before or change.old is None:
        return None
    if change.type == "DELETED":
        return Event("DELETED", change.new)
    # It left the selection: what the watcher knew of it, numbered by the change that took it away.
    meta = {**change.old.body["metadata"], "resourceVersion": str(change.number)}
    return Event("DELETED", Version({**change.old.body, "metadata": meta}, change.number))


def _bookmark(resource: Resource, number: int, *, initial: bool = False) -> Event:
    meta: Body = {"resourceVersion": str(number)}
    if initial:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return Event(
        "BOOKMARK",
        body={"kind": resource.kind, "apiVersion": resource.group_version, "metadata": meta},
    )


async def watch(
    store: Store, stored_as: Resource, request: WatchRequest
) -> AsyncGenerator[Event, None]:
    """The events of one watch, until its time is up. Ends early only after an ERROR event."""
    collection = store[stored_as]
    end = request.clock() + request.seconds
    watcher = Watcher(store.number if request.since is None else request.since)
    collection.watchers.add(watcher)
    try:
        if request.since is None:
            started_at = watcher.cursor
            # Taken before the first event goes out: all of it belongs to this one version.
            present = [
                Event("ADDED", collection.items[key])
                for key in collection.order
                if request.namespace in ("", key[0]) and request.match(collection.items[key].body)
            ]
            for event in present:
                yield event
            if request.initial_bookmark:
                yield _bookmark(request.resource, started_at, initial=True)
        bookmark_at = _next_bookmark(request, end)
        while True:
            watcher.bell.clear()
            try:
                changes = collection.since(watcher.cursor)
            except TooOld as error:
                yield Event("ERROR", body=expired(str(error)).status())
                return
            for change in changes:
                watcher.cursor = change.number
                if (selected := _selected(request, change)) is not None:
                    yield selected
            now = request.clock()
            # One that is due is told even if the time was up before anyone looked.
            due = request.bookmarks and now >= bookmark_at
            if now >= end and not due:
                return
            if watcher.bell.is_set():
                continue
            if due:
                # Everything up to the store's own number has been read.
                watcher.cursor = max(watcher.cursor, store.number)
                yield _bookmark(request.resource, watcher.cursor)
                bookmark_at = _next_bookmark(request, end)
                continue
            until = min(end, bookmark_at) if request.bookmarks else end
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await watcher.bell.wait()
    finally:
        collection.watchers.discard(watcher)


def _next_bookmark(request: WatchRequest, end: float) -> float:
    now = request.clock()
    before_end = end - BOOKMARK_BEFORE_END
    regular = now + request.bookmark_seconds
    return before_end if now < before_end < regular else regular
