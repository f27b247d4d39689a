"""The objects an informer holds, and what each list, watch event and own write does to them.

Nothing here waits or talks to a server: the informer calls it, and it calls `on_change`.
resourceVersions are compared as integers (Kubernetes guarantees their order since 1.35, and etcd
always has); one that is not an integer counts as older than any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from localvolume.kube.http.wire import DELETED
from localvolume.kube.objects import KubeObject

T = TypeVar("T", bound=KubeObject)

_log = logging.getLogger(__name__)


def key_of(thing: KubeObject) -> str:
    """`name`, or `namespace/name`."""
    meta = thing.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class Cache(Generic[T]):
    """`items` holds what the server has reported up to the resourceVersion `version`, but for the
    objects that `keep` denies."""

    def __init__(
        self,
        on_change: Callable[[T | None, T | None], None],
        keep: Callable[[T], bool] = lambda _: True,
    ) -> None:
        self.items: Final[dict[str, T]] = {}
        self.version = ""
        self._on_change: Final = on_change
        self._keep: Final = keep
        # Own writes that the watch has not echoed yet: key to resourceVersion.
        self._ahead: Final[dict[str, int]] = {}

    def replace(self, listed: Iterable[T], version: str) -> None:
        """Take in a complete list: what is not in it is gone, except own writes made after it."""
        fresh = {key_of(item): item for item in listed if self._keep(item)}
        upto = _number(version)
        for key, written in list(self._ahead.items()):
            if written <= upto:
                del self._ahead[key]
            elif key in self.items:
                fresh[key] = self.items[key]
            else:
                fresh.pop(key, None)
        self.version = version
        for key in [key for key in self.items if key not in fresh]:
            self._tell(self.items.pop(key), None)
        for key, new in fresh.items():
            self._put(key, new)

    def change(self, type_: str, thing: T) -> None:
        """Take in an event of the watch: ADDED, MODIFIED or DELETED."""
        key = key_of(thing)
        number = _number(thing.metadata.resource_version)
        old = self.items.get(key)
        # An event older than our own write is stale. (The server answers the removal of the last
        # finalizer with the resourceVersion of the change before it.)
        written = self._ahead.get(key, -1)
        ended = written >= 0 and old is None and type_ != DELETED
        stale = number < written or (ended and number == written)
        if not stale:
            self._ahead.pop(key, None)
            if type_ == DELETED or not self._keep(thing):
                if old is not None:
                    del self.items[key]
                    # The last state, with the finalizers and phase it had when it was deleted.
                    self._tell(thing, None)
            else:
                self._put(key, thing)
        self.reached(thing.metadata.resource_version)

    def reached(self, version: str) -> None:
        """Note that the watch has reported everything up to this resourceVersion."""
        if not version:
            return
        self.version = version
        if not self._ahead:
            return
        # Events come in order. If the watch has passed an own write without echoing it, the object
        # is outside our selector and does not belong here.
        upto = _number(version)
        for key, written in list(self._ahead.items()):
            if written <= upto:
                del self._ahead[key]
                old = self.items.pop(key, None)
                if old is not None:
                    self._tell(old, None)

    def write(self, thing: T) -> bool:
        """Take in an object we created or changed ourselves; False if it is not newer.

        If the watch is past it, the cache is newer, even if the object is no longer in it.
        """
        number = _number(thing.metadata.resource_version)
        key = key_of(thing)
        old = self.items.get(key)
        known = _number(old.metadata.resource_version) if old is not None else -1
        if not self.version or number <= max(known, _number(self.version)):
            return False
        self._ahead[key] = number
        if thing.metadata.deletion_timestamp and not thing.metadata.finalizers:
            # We removed the last finalizer: the server's answer is the object's last state.
            if self.items.pop(key, None) is not None:
                self._tell(thing, None)
        else:
            self._put(key, thing)
        return True

    def _put(self, key: str, new: T) -> None:
        old = self.items.get(key)
        if old is not None and old.metadata.uid != new.metadata.uid:
            # Another object of the same name: the deletion of the first one was missed.
            del self.items[key]
            self._tell(old, None)
            old = None
        if old is None or old.metadata.resource_version != new.metadata.resource_version:
            self.items[key] = new
            self._tell(old, new)

    def _tell(self, old: T | None, new: T | None) -> None:
        try:
            self._on_change(old, new)
        except Exception:  # noqa: BLE001 - whatever a listener does, the cache must stay right
            about = new or old
            name = key_of(about) if about is not None else "?"
            _log.exception("a listener failed on %s", name)


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else -1
