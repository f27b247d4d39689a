"""What wakes the snapshots' role up, and its look: from facts to a plan, from the plan to acts.

A content never has two acts under way. A cluster without the kinds of snapshots is no problem: the
role rests until they come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from localvolume.config.model import Configuration
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.calls import NotNow, Refused, Volumes
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError, LookAgain, NotThere, TellTheAdministrator
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer, unready
from localvolume.kube.kinds import SNAPSHOT_CONTENTS
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.snapshotobjects import VolumeSnapshotContent
from localvolume.reconcile.loop import Loop
from localvolume.reconcile.runner import Failing, Runner
from localvolume.snapshots.act import Acts
from localvolume.snapshots.facts import gather
from localvolume.snapshots.metrics import SnapshotMetrics
from localvolume.snapshots.paces import SnapshotPaces
from localvolume.snapshots.plan import Action, own_contents, plan
from localvolume.volumes import marks
from localvolume.volumes.snapshots import owner_of

log = logging.getLogger(__name__)

AT_A_TIME: Final = 8
"""How many contents are worked on at once."""

UNKNOWN_SECONDS: Final = 1.0
"""How soon to look again while the volumes of the node are not known."""


@dataclass(eq=False, kw_only=True)
class SnapshotRole:
    """`objects` are the PersistentVolumes of this node by name."""

    client: Client
    events: EventRecorder
    metrics: SnapshotMetrics
    volumes: Volumes
    objects: Mapping[str, PersistentVolume]
    node_name: str
    paces: SnapshotPaces

    def __post_init__(self) -> None:
        self._node_key = marks.node_key(self.node_name)
        self._contents = Informer(
            self.client,
            SNAPSHOT_CONTENTS,
            on_change=self.changed,
            keep=self._may_be_own,
            absent_seconds=self.paces.absent,
        )
        acts = Acts(
            client=self.client,
            contents=self._contents,
            volumes=self.volumes,
            events=self.events,
            metrics=self.metrics,
            node_key=self._node_key,
            paces=self.paces,
        )
        self._runner = Runner[Action](
            acts.act,
            failed=self._failed,
            ended=self._ended,
            backoff=lambda: Backoff(self.paces.first_wait, self.paces.longest_wait),
            kind=lambda action: type(action).__name__,
            at_a_time=AT_A_TIME,
        )
        self._refused: dict[str, str] = {}
        """What the API server does not let us write, by the content's name."""
        self.loop = Loop("snapshots", self._look, resync=lambda: self.paces.resync)

    @property
    def problems(self) -> dict[str, str]:
        """What keeps snapshots from being cut and removed; the role is ready if empty."""
        if unread := unready(self._contents):
            return unread
        found = {"snapshots": self.loop.problem} if self.loop.problem else {}
        if self._refused:
            found["snapshot contents"] = min(self._refused.values())
        return found

    def changed(self, *_: object) -> None:
        """A content, or a PersistentVolume of this node, changed."""
        self.loop.wake()

    def reconfigure(self, configuration: Configuration) -> None:
        """Snapshots are cut of whatever pools there are: nothing of them is configured."""

    async def run(self) -> NoReturn:
        """Never returns; on cancellation stops what is under way, and the next agent goes on."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._contents.run())
                await self._contents.answered.wait()
                await self.loop.run()
        finally:
            await self._runner.end()

    def _may_be_own(self, content: VolumeSnapshotContent) -> bool:
        """Contents of other drivers and nodes are not kept: there may be many."""
        return content.spec.driver == CSI_DRIVER and owner_of(content) in ("", self._node_key)

    async def _look(self) -> float:
        """Returns in how many seconds something is due; 0 if nothing is."""
        contents = self._contents.items
        try:
            facts = gather(self._node_key, contents, self.objects.values(), self.volumes)
        except NotNow:
            # The role that has the pools says what is wrong with them.
            return UNKNOWN_SECONDS
        self.metrics.tell(own_contents(facts))
        self._runner.forget_but(contents.keys())
        for name in self._refused.keys() - contents.keys():
            del self._refused[name]
        waits = []
        for action in plan(facts):
            name = action.content.metadata.name
            if name in self._runner.busy:
                continue
            if (left := self._runner.left(name, action)) > 0:
                waits.append(left)
            else:
                self._runner.offer(name, action)
        return min(waits, default=0.0)

    def _ended(self, name: str, _action: Action, wait: float | None) -> None:
        if wait is None:
            self._refused.pop(name, None)
        self.loop.wake()

    def _failed(self, name: str, action: Action, error: Exception, failing: Failing) -> float:
        if isinstance(error, LookAgain | NotThere):
            log.debug("snapshot content %s: it has changed: %s", name, error)
            return failing.overtaken()
        wait = failing.again(error.after if isinstance(error, ApiError) else None)
        if isinstance(error, TellTheAdministrator):
            self._refused[name] = f"{name}: {error}"
        what = type(action).__name__
        if isinstance(error, ApiError | Refused | OSError):
            log.warning("snapshot content %s: %s: again in %.1f s: %s", name, what, wait, error)
        else:
            text = "snapshot content %s: %s: again in %.1f s: a mistake of ours"
            log.error(text, name, what, wait, exc_info=error)
        return wait
