"""Keeps the node's CSIStorageCapacity objects up to date: what is written, and when.

A write that promises less goes out at once. Growth, and repair of what others changed, is written
at most once a second for each object; how full its pools are, at most every five minutes.
A class never has two writes under way; what changes meanwhile is written afterwards. The objects
stay when the process ends: it will be back.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NoReturn

from localvolume.dynamic.paces import CapacityPaces
from localvolume.dynamic.plan.capacity import (
    Action,
    CapacityFacts,
    Create,
    Delete,
    Desired,
    Patch,
    desired_objects,
    manifest,
    notes,
    ours,
    plan_objects,
    shrinks,
)
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.correlate import EventType
from localvolume.kube.errors import (
    AlreadyThere,
    ApiError,
    LookAgain,
    TellTheAdministrator,
)
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import STORAGE_CAPACITIES
from localvolume.kube.objects import CSIStorageCapacity
from localvolume.kube.standing import Standing
from localvolume.reconcile.loop import Loop, Rest
from localvolume.reconcile.runner import Failing, Runner
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts

log = logging.getLogger(__name__)

EVENT_REFUSED = "CapacityNotPublished"
EVENT_REFUSED_OVER = "CapacityNotPublishedOver"


@dataclass(slots=True)
class _Class:
    """What this process remembers of one class; times are time.monotonic()."""

    written_at: float = -math.inf
    written: Desired | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class _Writes:
    """All the writes that one class needs now, and what they publish for it."""

    actions: Sequence[Action]
    desired: Desired | None
    node: NodeFacts

    @property
    def only_used(self) -> bool:
        """Whether they say nothing but how full pools are."""
        return all(isinstance(one, Patch) and one.only_used for one in self.actions)


@dataclass(eq=False)
class CapacityRole:
    """Run `run()` as a task; `update` tells it what there is, after each look.

    `informer` watches the objects with this node's label in `namespace`; its `on_change` must call
    `objects_changed`. `events`, if given, get an Event on the Node for each refusal.
    """

    client: Client
    informer: Informer[CSIStorageCapacity]
    namespace: str
    events: EventRecorder | None = None
    paces: CapacityPaces | None = None

    def __post_init__(self) -> None:
        self._paces = self.paces or CapacityPaces()
        self._facts: CapacityFacts | None = None
        self.loop = Loop("storage capacities", self._look, rest=Rest(longest=0.0))
        self._runner = Runner[_Writes](
            self._act,
            failed=self._failed,
            ended=lambda *_: self.loop.wake(),
            backoff=lambda: Backoff(self._paces.first_wait, self._paces.longest_wait),
            # A failure to say how full pools are must not delay a promise of less.
            kind=lambda writes: "used" if writes.only_used else "",
        )
        self._classes: dict[str, _Class] = {}
        # Names that objects which are not ours have.
        self._taken: set[str] = set()
        self._said = ""
        self._refusal = Standing(self._event, EVENT_REFUSED, EVENT_REFUSED_OVER)

    @property
    def refused(self) -> str:
        """Why nothing can be published until an administrator changes something; "" if it can."""
        if self.informer.refused is not None:
            return f"storage capacities cannot be read: {self.informer.refused}"
        texts = [known.refused for known in self._classes.values() if known.refused]
        return f"storage capacities cannot be published: {min(texts)}" if texts else ""

    def update(self, facts: CapacityFacts | None) -> None:
        """Set what the node has from now on. Returns at once.

        None: there is no Node. The garbage collector deletes its objects, and would delete every
        new one too.
        """
        self._facts = facts
        self._say()
        self.loop.wake()

    def objects_changed(self, *_: object) -> None:
        """An object of ours was created, changed or deleted."""
        self.loop.wake()

    async def run(self) -> NoReturn:
        """Never returns; on cancellation stops what is under way and leaves the objects."""
        try:
            await self.informer.answered.wait()
            self._say()
            await self.informer.synced.wait()
            await self.loop.run()
        finally:
            await self._runner.end()

    async def _look(self) -> float:
        """Returns in how many seconds the next write is due; 0 if none is."""
        if self._facts is None:
            return 0.0
        facts, now = self._facts, time.monotonic()
        # An object that we just deleted may still be listed; its class waits a second anyway.
        actions = plan_objects(facts, self.informer.items.values(), self._taken)
        wanted = desired_objects(facts.classes)
        keys, soonest = set(), 0.0
        for key, group in groupby(actions, key=lambda action: action.key):
            keys.add(key)
            known = self._classes.setdefault(key, _Class())
            if key in self._runner.busy:
                continue
            writes = _Writes(list(group), wanted.get(key), facts.node)
            wait = self._runner.left(key, writes)
            if writes.only_used:
                wait = max(wait, known.written_at + self._paces.used - now)
            elif not shrinks(known.written, writes.desired):
                wait = max(wait, known.written_at + self._paces.between - now)
            if wait <= 0:
                self._runner.offer(key, writes)
            else:
                soonest = min(soonest or wait, wait)
        for key, known in list(self._classes.items()):
            if key not in keys and key not in self._runner.busy:
                known.refused = ""
                if key not in wanted and known.written_at + self._paces.between <= now:
                    del self._classes[key]
                    self._runner.forget(key)
        self._say()
        return soonest

    async def _act(self, writes: _Writes) -> None:
        key = writes.actions[0].key
        for action in writes.actions:
            log.info("storage capacity of class %s: %s", key, action.reason)
            await self._write(action, writes.node)
        known = self._classes[key]
        known.written, known.written_at, known.refused = writes.desired, time.monotonic(), ""

    def _failed(self, key: str, _writes: _Writes, error: Exception, failing: Failing) -> float:
        wait = failing.again(error.after if isinstance(error, ApiError) else None)
        if not isinstance(error, ApiError):  # a mistake of ours about one class
            text = "storage capacity of %s: again in %.1f s: unexpected"
            log.error(text, key, wait, exc_info=error)
            return wait
        if isinstance(error, TellTheAdministrator):
            self._classes[key].refused = str(error)
        level = logging.DEBUG if isinstance(error, LookAgain) else logging.INFO
        log.log(level, "storage capacity of %s: again in %.1f s: %s", key, wait, error)
        return wait

    async def _write(self, action: Action, node: NodeFacts) -> None:
        """Raises ApiError; LookAgain and NotThere if the objects are no longer as they were."""
        if isinstance(action, Delete):
            meta = action.object.metadata
            bound = {"uid": meta.uid, "resource_version": meta.resource_version}
            await self.client.delete(STORAGE_CAPACITIES, meta.name, self.namespace, **bound)
        elif isinstance(action, Patch):
            meta = action.object.metadata
            bound = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            no_more = {marks.PROBLEM_ANNOTATION: None, marks.POOLS_ANNOTATION: None}
            said = {**no_more, **notes(action.desired, action.object)}
            metadata = {**bound, "annotations": said}
            patch = MergePatch({"metadata": metadata, **action.desired.sizes})
            made = await self.client.patch(STORAGE_CAPACITIES, meta.name, patch, self.namespace)
            self.informer.apply_own_write(made)
        elif isinstance(action, Create):
            body = manifest(action, node, self.namespace)
            try:
                made = await self.client.create(STORAGE_CAPACITIES, body)
            except AlreadyThere as error:
                await self._see_at(action.name, node)
                raise LookAgain(error.message) from error
            self.informer.apply_own_write(made)

    async def _see_at(self, name: str, node: NodeFacts) -> None:
        """Look at what has the name that we wanted: an unknown object of ours, or another's."""
        there = await self.client.get(STORAGE_CAPACITIES, name, self.namespace)
        if ours(there, node.name):
            self.informer.apply_own_write(there)
        else:
            log.warning("the name %s is taken by a storage capacity that is not ours", name)
            self._taken.add(name)

    def _say(self) -> None:
        """Say what is refused: in the log once, and on the Node as soon as that is known."""
        text = self.refused
        if text and not self._said:
            log.error("%s", text)
        self._said = text
        if self._facts is None:
            self._refusal.forget()
        elif text:
            self._refusal.stands(text)
        else:
            self._refusal.over("storage capacities are not refused any more")

    def _event(self, type_: EventType, reason: str, text: str) -> None:
        if self.events is not None and self._facts is not None:
            node = ObjectRef.of_node(self._facts.node.name)
            self.events.event(node, type_, reason, text)
