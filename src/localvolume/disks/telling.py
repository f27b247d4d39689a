"""Writes down which raw disks the node has, and what the plan says of each, whenever that changes.

It is for people only: nothing waits for it, and its failures end nothing.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from localvolume.disks.model import DiskPlan
from localvolume.disks.plan.told import (
    Step,
    Telling,
    manifest,
    note_of,
    object_name,
    ours,
    steps,
)
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.errors import AlreadyThere, ApiError, LookAgain, NotThere
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import STORAGE_CAPACITIES
from localvolume.kube.objects import CSIStorageCapacity, Node, OwnerReference
from localvolume.kube.ownpod import OwnPod
from localvolume.reconcile.loop import Loop
from localvolume.reconcile.runner import Failing, Runner
from localvolume.volumes import marks
from localvolume.volumes.manifest import node_facts

log = logging.getLogger(__name__)

_KEY: Final = "disks"

_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 300.0
"""Bounds of the wait after a failure, in seconds."""

_TAKING_BACK: Final = 1.0
"""How soon after a write all of it is taken back: the watch may show what is deleted already."""


class _Writes(NamedTuple):
    """All that is to be written now, and what is told then."""

    steps: Sequence[Step]
    telling: Telling | None


@dataclass(eq=False, kw_only=True)
class DisksTelling:
    """Run `run()` as a task; `tell` says what there is, after each look at the disks.

    `informer` watches the node's objects for disks in `namespace`, and calls `changed`, which is
    also to be called when the Node or the agent's own pod changes. `nodes` is an informer's copy.
    `between` is the least time between two writes, in seconds.
    """

    client: Client
    informer: Informer[CSIStorageCapacity]
    namespace: str
    nodes: Mapping[str, Node]
    own_pod: OwnPod
    node_name: str
    between: float

    def __post_init__(self) -> None:
        self.loop = Loop("telling of disks", self._look)
        self._runner = Runner[_Writes](
            self._write,
            failed=self._failed,
            ended=lambda *_: self.loop.wake(),
            backoff=lambda: Backoff(_FIRST_WAIT, _LONGEST_WAIT),
        )
        self._note: str | None = None
        self._looked = False
        self._is_taken = False
        self._written_at = -math.inf

    def tell(self, plan: DiskPlan | None) -> None:
        """Tell of these disks from now on; None: of none, as none are configured. Returns at once.

        Until it is called for the first time, what an earlier agent told stays.
        """
        note = None if plan is None else note_of(plan)
        if (note, True) != (self._note, self._looked):
            self._note, self._looked = note, True
            self.loop.wake()

    def changed(self, *_: object) -> None:
        """An object changed on which it depends."""
        self.loop.wake()

    async def run(self) -> None:
        """Never returns; on cancellation stops what is under way and leaves the object."""
        try:
            await self.own_pod.answered.wait()
            await self.informer.answered.wait()
            if self.informer.refused is not None:
                log.warning("this node's raw disks are not published: %s", self.informer.refused)
            await self.informer.synced.wait()
            await self.loop.run()
        finally:
            await self._runner.end()

    async def _look(self) -> float:
        """Returns in how many seconds the next write is due; 0 if none is."""
        telling = self._telling()
        if not self._looked or (telling is None and self._note is not None):
            return 0.0
        found = steps(telling, self.node_name, self.informer.items.values())
        if not found:
            self._runner.forget(_KEY)
            return 0.0
        writes = _Writes(found, telling)
        between = self.between if telling is not None else min(self.between, _TAKING_BACK)
        wait = self._written_at + between - time.monotonic()
        wait = max(wait, self._runner.left(_KEY, writes))
        if wait > 0:
            return wait
        self._runner.offer(_KEY, writes)
        return 0.0

    def _telling(self) -> Telling | None:
        """What is to be told; None if nothing is, or there is no Node of which to tell it."""
        node = node_facts(self.node_name, self.nodes.get(self.node_name))
        if self._note is None or isinstance(node, str):
            return None
        pod = self.own_pod.pod
        if pod is not None and pod.metadata.uid:
            owner = OwnerReference(
                api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid
            )
        else:
            owner = OwnerReference(api_version="v1", kind="Node", name=node.name, uid=node.uid)
        return Telling(self._note, node, owner)

    async def _write(self, writes: _Writes) -> None:
        """Raises ApiError; LookAgain and NotThere if an object is no longer as it was."""
        for step in writes.steps:
            log.info("%s", step.reason)
            await self._do(step, writes.telling)
        self._written_at = time.monotonic()

    async def _do(self, step: Step, telling: Telling | None) -> None:
        there = step.object.metadata if step.object is not None else None
        if there is None and telling is not None:
            await self._create(telling)
        elif there is not None and step.do == "delete":
            bound = {"uid": there.uid, "resource_version": there.resource_version}
            with contextlib.suppress(NotThere):
                await self.client.delete(STORAGE_CAPACITIES, there.name, self.namespace, **bound)
        elif there is not None and telling is not None:
            metadata = {
                "uid": there.uid,
                "resourceVersion": there.resource_version,
                "annotations": {marks.DISKS_ANNOTATION: telling.note},
            }
            patch = MergePatch({"metadata": metadata})
            made = await self.client.patch(STORAGE_CAPACITIES, there.name, patch, self.namespace)
            self.informer.apply_own_write(made)

    async def _create(self, telling: Telling) -> None:
        body = manifest(telling, self.namespace, is_taken=self._is_taken)
        try:
            made = await self.client.create(STORAGE_CAPACITIES, body)
        except AlreadyThere as error:
            name = object_name(self.node_name)
            there = await self.client.get(STORAGE_CAPACITIES, name, self.namespace)
            if ours(there, self.node_name) and not there.metadata.deletion_timestamp:
                self.informer.apply_own_write(there)
            else:
                text = "the name %s is taken by a storage capacity that is not ours, or does not go"
                log.warning(text, name)
                self._is_taken = True
            raise LookAgain(error.message) from error
        self.informer.apply_own_write(made)

    def _failed(self, _: str, __: _Writes, error: Exception, failing: Failing) -> float:
        if not isinstance(error, ApiError):  # a mistake of ours
            wait = failing.again()
            log.error(
                "publishes this node's raw disks again in %.1f s: unexpected", wait, exc_info=error
            )
            return wait
        wait, text = failing.again(error.after), str(error)
        new = text != failing.note and not isinstance(error, LookAgain)
        failing.note = text
        level = logging.WARNING if new else logging.DEBUG
        log.log(level, "publishes this node's raw disks again in %.1f s: %s", wait, text)
        return wait
