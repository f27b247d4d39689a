"""Keeps the node's CSIStorageCapacity objects as its room asks for: what is written, and when.

What promises less is written at once, growth and what others spoil at most once in a second for
each object. A class never has two writes under way; what changes meanwhile is seen to afterwards.
Nothing is removed at the end of the process: volumes are only not made until it is back.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NoReturn

from localvolume.dynamic.paces import CapacityPaces
from localvolume.dynamic.plan.capacity import (
    CapacityFacts,
    Create,
    Delete,
    Desired,
    Patch,
    Step,
    desired_objects,
    manifest,
    notes,
    ours,
    plan_objects,
    shrinks,
)
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.ending import ended
from localvolume.kube.errors import (
    AlreadyThere,
    ApiError,
    LookAgain,
    TellTheAdministrator,
    TryAgainLater,
)
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.http.transport import LONGEST_WAIT_SECONDS
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import STORAGE_CAPACITIES
from localvolume.kube.objects import CSIStorageCapacity
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts

log = logging.getLogger(__name__)

EVENT_REFUSED = "CapacityNotPublished"


@dataclass(slots=True)
class _Class:
    """What is remembered of one class, for this process alone; times are the event loop's."""

    backoff: Backoff
    task: asyncio.Task[None] | None = None
    not_before: float = 0.0
    written_at: float = -math.inf
    written: Desired | None = None
    refused: str = ""


class CapacityRole:
    """Run `run()` as a task; `update` tells it what there is, after each look.

    `informer` is of the objects with this node's label in `namespace`; its `on_change` must call
    `objects_changed`. `events`, where given, are told of a refusal, on the Node.
    """

    def __init__(
        self,
        client: Client,
        informer: Informer[CSIStorageCapacity],
        namespace: str,
        events: EventRecorder | None = None,
        paces: CapacityPaces | None = None,
    ) -> None:
        self._client: Final = client
        self._informer: Final = informer
        self._namespace: Final = namespace
        self._events: Final = events
        self._paces: Final = paces or CapacityPaces()
        self._facts: CapacityFacts | None = None
        self._wake: Final = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._classes: Final[dict[str, _Class]] = {}
        # Names at which somebody else's object is, or one that is yet to go.
        self._taken: Final[set[str]] = set()
        self._said = ""
        self._told = False

    @property
    def refused(self) -> str:
        """Why the room cannot be published until an administrator changes something, "" if not."""
        if self._informer.refused is not None:
            return f"storage capacities cannot be read: {self._informer.refused}"
        texts = [known.refused for known in self._classes.values() if known.refused]
        return f"storage capacities cannot be published: {min(texts)}" if texts else ""

    def update(self, facts: CapacityFacts | None) -> None:
        """From now on this is what the node has. Returns at once.

        None: there is no Node. What is published of it the garbage collector takes away, and would
        take away again as often as it was made.
        """
        self._facts = facts
        self._say()
        self._wake.set()

    def objects_changed(self, *_: object) -> None:
        """An object of ours came, went or changed."""
        self._wake.set()

    async def run(self) -> NoReturn:
        """Never returns; on cancellation stops what is under way and leaves the objects."""
        try:
            await self._informer.answered.wait()
            self._say()
            await self._informer.synced.wait()
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._facts is not None:
                    self._look(self._facts)
        finally:
            if self._alarm:
                self._alarm.cancel()
            await ended(*(known.task for known in self._classes.values() if known.task))

    def _look(self, facts: CapacityFacts) -> None:
        now = asyncio.get_running_loop().time()
        # One that we have just deleted may be among them still: its turn is a second away.
        steps = plan_objects(facts, self._informer.items.values(), self._taken)
        wanted = desired_objects(facts.classes)
        keys, soonest = set(), 0.0
        for key, group in groupby(steps, key=lambda step: step.key):
            keys.add(key)
            known = self._classes.get(key)
            if known is None:
                backoff = Backoff(self._paces.first_wait, self._paces.longest_wait)
                known = self._classes[key] = _Class(backoff)
            if known.task is not None:
                continue
            due = known.not_before
            if not shrinks(known.written, wanted.get(key)):
                due = max(due, known.written_at + self._paces.between)
            if due <= now:
                act = self._do(known, wanted.get(key), list(group), facts.node)
                known.task = asyncio.create_task(act)
            else:
                soonest = min(soonest or due, due)
        for key, known in list(self._classes.items()):
            if key not in keys and known.task is None:
                known.refused = ""
                if key not in wanted and known.written_at + self._paces.between <= now:
                    del self._classes[key]
        self._say()
        self._wake_at(soonest)

    async def _do(
        self, known: _Class, desired: Desired | None, steps: Sequence[Step], node: NodeFacts
    ) -> None:
        loop = asyncio.get_running_loop()
        key = steps[0].key
        try:
            for step in steps:
                log.info("storage capacity of class %s: %s", key, step.reason)
                await self._write(step, node)
            known.written, known.written_at = desired, loop.time()
            known.refused = ""
            known.not_before = 0.0
            known.backoff.reset()
        except ApiError as error:
            after = error.after if isinstance(error, TryAgainLater) else None
            wait = known.backoff.next(min(after, LONGEST_WAIT_SECONDS) if after else None)
            known.not_before = loop.time() + wait
            if isinstance(error, TellTheAdministrator):
                known.refused = str(error)
            level = logging.DEBUG if isinstance(error, LookAgain) else logging.INFO
            log.log(level, "storage capacity of %s: again in %.1f s: %s", key, wait, error)
        except Exception:  # a mistake of ours about one class must not end the others
            wait = known.backoff.next()
            known.not_before = loop.time() + wait
            log.exception("storage capacity of %s: again in %.1f s: unexpected", key, wait)
        finally:
            known.task = None
            self._wake.set()

    async def _write(self, step: Step, node: NodeFacts) -> None:
        """Raises ApiError; LookAgain and NotThere where the objects are no longer as they were."""
        if isinstance(step, Delete):
            meta = step.object.metadata
            bound = {"uid": meta.uid, "resource_version": meta.resource_version}
            await self._client.delete(STORAGE_CAPACITIES, meta.name, self._namespace, **bound)
        elif isinstance(step, Patch):
            meta = step.object.metadata
            bound = {"uid": meta.uid, "resourceVersion": meta.resource_version}
            said = {marks.PROBLEM_ANNOTATION: None, **notes(step.desired)}
            metadata = {**bound, "annotations": said}
            patch = MergePatch({"metadata": metadata, **step.desired.sizes})
            made = await self._client.patch(STORAGE_CAPACITIES, meta.name, patch, self._namespace)
            self._informer.apply_own_write(made)
        elif isinstance(step, Create):
            body = manifest(step, node, self._namespace)
            try:
                made = await self._client.create(STORAGE_CAPACITIES, body)
            except AlreadyThere as error:
                await self._see_at(step.name, node)
                raise LookAgain(error.message) from error
            self._informer.apply_own_write(made)

    async def _see_at(self, name: str, node: NodeFacts) -> None:
        """What has the name that we wanted: ours, of which we did not know, or another's."""
        there = await self._client.get(STORAGE_CAPACITIES, name, self._namespace)
        if ours(there, node.name):
            self._informer.apply_own_write(there)
        else:
            log.warning("the name %s is taken by a storage capacity that is not ours", name)
            self._taken.add(name)

    def _say(self) -> None:
        """Once for each time that it is refused: in the log, and on the Node once that is known."""
        text = self.refused
        if text and not self._said:
            log.error("%s", text)
        self._said = text
        if not text:
            self._told = False
        elif not self._told and self._events is not None and self._facts is not None:
            self._told = True
            name = self._facts.node.name
            self._events.event(ObjectRef.of_node(name), "Warning", EVENT_REFUSED, text)

    def _wake_at(self, when: float) -> None:
        """Look again at that time of the event loop, if nothing wakes us before; 0: do not."""
        if self._alarm:
            self._alarm.cancel()
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_at(when, self._wake.set) if when else None
