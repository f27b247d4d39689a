"""A live copy of the objects of one kind that a selector picks: list once, then watch.

    list (paged) -> watch from its resourceVersion -> ... -> watch ended or failed
         ^                  ^                                     |
         |                  +---- resume, after a backoff --------+
         +---- 410: too old to resume, after a backoff -----------+

The informer never gives up. After a failure, a 410, or a watch that ended early it waits, longer
each time, until a watch has lasted for a while. A kind that the cluster may not have is waited for
without a warning.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from localvolume.kube.backoff import Backoff
from localvolume.kube.cache import Cache
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError, ListAgain, NotThere, TellTheAdministrator
from localvolume.kube.http.wire import BOOKMARK
from localvolume.kube.kinds import Kind
from localvolume.kube.objects import KubeObject

T = TypeVar("T", bound=KubeObject)

_log = logging.getLogger(__name__)

PAGE: Final = 500
# A watch that lasted this long resets the backoff.
HEALTHY_SECONDS: Final = 10.0


@dataclass(eq=False)
class Informer(Generic[T]):
    """Run `run()` as a task, wait for `synced`, read `items`, and be told by `on_change(old, new)`.

    `on_change` is called in the event loop and must not block: old is None for an added object, new
    is None for one that is gone. The keys of `items` are `name` or `namespace/name`. `last_contact`
    is the loop's time when the server last sent anything, 0.0 before that. Objects that `keep`
    denies are as if they were not there. With `absent_seconds` the cluster may lack the kind: it
    is looked for again after that time, and `absent` says whether it is lacking.
    """

    client: Client
    kind: Kind[T]
    _: KW_ONLY
    namespace: str | None = None
    label_selector: str = ""
    field_selector: str = ""
    on_change: Callable[[T | None, T | None], None]
    keep: Callable[[T], bool] = lambda _: True
    absent_seconds: float | None = None
    healthy_seconds: float = HEALTHY_SECONDS
    backoff: Backoff | None = None

    def __post_init__(self) -> None:
        self._backoff = self.backoff or Backoff()
        self._cache: Cache[T] = Cache(self.on_change, self.keep)
        self._page_limit = PAGE
        self._must_list = True
        self.items: Mapping[str, T] = MappingProxyType(self._cache.items)
        self.synced = asyncio.Event()
        self.answered = asyncio.Event()
        """Set once a list is complete, or the server has refused a request (see `refused`) or does
        not have the kind."""
        self.absent = False
        self.refused: ApiError | None = None
        """Why the server refused the last list or watch, if retrying alone cannot help."""
        self.last_contact = 0.0
        self.bytes_received = 0
        self.events_received = 0
        self.lists = 0
        self.watches = 0

    async def run(self) -> None:
        """Keep the copy up to date until cancelled. Never returns, and raises nothing else."""
        loop = asyncio.get_running_loop()
        while True:
            watching_since: float | None = None
            ended_well = False
            after: float | None = None
            try:
                if self._must_list:
                    await self._list()
                watching_since = loop.time()
                await self._watch()
                ended_well = True
            except ListAgain as error:
                _log.info("listing %s again: %s", self.kind.plural, error)
                self._must_list = True
            except ApiError as error:
                if isinstance(error, NotThere) and self.absent_seconds is not None:
                    await self._wait_for_kind(self.absent_seconds)
                    continue
                _log.warning("%s: %s", self.kind.plural, error)
                if isinstance(error, TellTheAdministrator):
                    self.refused = error
                    self.answered.set()
                # The server's history ends before what we saw (it was restored from a backup), or
                # it does not understand our resourceVersion: resuming would always fail.
                self._must_list |= error.reason == "ResourceVersionTooLarge" or error.status == 400
                after = error.after
            lasted = None if watching_since is None else loop.time() - watching_since
            if lasted is not None and lasted >= self.healthy_seconds:
                self._backoff.reset()
                if ended_well:
                    # It ended on time. No jitter is needed: the watches' timeouts are random.
                    continue
            await asyncio.sleep(self._backoff.next(after))

    def apply_own_write(self, thing: T) -> bool:
        """Put an object that we just created or patched into `items` before the watch brings it.

        Returns False and ignores it unless it is newer, so a deleted object never comes back.
        """
        return self._cache.write(thing)

    async def _wait_for_kind(self, seconds: float) -> None:
        """The server does not have the kind, and so no object of it."""
        if not self.absent:
            _log.info("%s: this cluster does not have them", self.kind.plural)
        self.absent = self._must_list = True
        self._cache.replace((), "")
        self.answered.set()
        await asyncio.sleep(seconds * random.uniform(1.0, 1.5))  # noqa: S311 - jitter, no secret

    async def _list(self) -> None:
        found: list[T] = []
        cont = ""
        self.lists += 1
        while True:
            try:
                page = await self.client.list_page(
                    self.kind,
                    self.namespace,
                    label_selector=self.label_selector,
                    field_selector=self.field_selector,
                    limit=self._page_limit,
                    cont=cont,
                )
            except ListAgain:
                # The snapshot expired between two pages: list in one piece next time.
                self._page_limit = 0
                raise
            self._heard(page.size)
            found += page.items
            cont = page.cont
            if not cont:
                break
        self._page_limit = PAGE
        if self.absent:
            _log.info("%s: this cluster has them now", self.kind.plural)
        self.absent = False
        self._cache.replace(found, page.resource_version)
        self._must_list = False
        self.synced.set()
        self.answered.set()

    async def _watch(self) -> None:
        self.watches += 1
        events = self.client.watch(
            self.kind,
            self.namespace,
            resource_version=self._cache.version,
            label_selector=self.label_selector,
            field_selector=self.field_selector,
            timeout_seconds=random.uniform(*self.client.watch_seconds),  # noqa: S311 - not a secret
            on_bytes=self._heard,
        )
        cache = self._cache
        async with aclosing(events):
            async for event in events:
                if event.type == BOOKMARK:
                    cache.reached(event.object.metadata.resource_version)
                else:
                    self.events_received += 1
                    cache.change(event.type, event.object)

    def _heard(self, size: int) -> None:
        self.bytes_received += size
        self.refused = None
        self.last_contact = asyncio.get_running_loop().time()


def unready(*informers: Informer[Any]) -> dict[str, str]:
    """Why copies are incomplete or refused, by the plural of their kind; empty if none is."""
    return {
        one.kind.plural: str(one.refused or "not all have been read yet")
        for one in informers
        if one.refused is not None or not (one.synced.is_set() or one.absent)
    }
