"""What the roles for contents of snapshots and of groups run on: what wakes them, and their looks.

A content never has two acts under way. A cluster without the kinds of snapshots is no problem: the
role rests until they come.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NoReturn, Protocol, TypeVar

from localvolume.config.model import Configuration
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.calls import NotNow, Refused, Volumes
from localvolume.dynamic.model import Told
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError, LookAgain, NotThere, TellTheAdministrator
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer, unready
from localvolume.kube.kinds import Kind
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent, VolumeSnapshotContent
from localvolume.reconcile.loop import Loop
from localvolume.reconcile.runner import Failing, Runner
from localvolume.snapshots.paces import SnapshotPaces
from localvolume.volumes import marks
from localvolume.volumes.snapshots import owner_of

log = logging.getLogger(__name__)

AT_A_TIME: Final = 8
"""How many contents are worked on at once."""

UNKNOWN_SECONDS: Final = 1.0
"""How soon to look again while too little is known."""


class Planned(Protocol):
    """Something to do for a content."""

    @property
    def name(self) -> str:
        """The content's."""
        ...


C = TypeVar("C", VolumeSnapshotContent, VolumeGroupSnapshotContent)
A = TypeVar("A", bound=Planned)


def handles_told(
    node_key: str, what: str, contents: Iterable[C], handle_of: Callable[[C], str]
) -> dict[str, str]:
    """What the contents that are that node's say is there, by handle: which content says so."""
    return {
        handle: f"{what} content {content.metadata.name}"
        for content in contents
        if owner_of(content) == node_key and (handle := handle_of(content))
    }


@dataclass(eq=False, kw_only=True)
class ContentsRole(Generic[C, A]):
    """`objects` are the PersistentVolumes of this node by name."""

    client: Client
    events: EventRecorder
    volumes: Volumes
    objects: Mapping[str, PersistentVolume]
    node_name: str
    paces: SnapshotPaces
    on_change: Callable[[], object]
    """Called when a content changed."""

    def begin(self, kind: Kind[C], what: str) -> None:
        """Set up for contents of that kind; `what` names them in logs, and the loop."""
        self.node_key = marks.node_key(self.node_name)
        self.contents: Informer[C] = Informer(
            self.client,
            kind,
            on_change=self.content_changed,
            keep=self._may_be_own,
            absent_seconds=self.paces.absent,
        )
        self._what = what
        self._runner = Runner[A](
            self.act,
            failed=self._failed,
            ended=self._ended,
            backoff=lambda: Backoff(self.paces.first_wait, self.paces.longest_wait),
            kind=lambda action: type(action).__name__,
            at_a_time=AT_A_TIME,
        )
        self._refused: dict[str, str] = {}
        """What the API server does not let us write, by the content's name."""
        self.loop = Loop(f"{what}s", self._look, resync=lambda: self.paces.resync)

    @abstractmethod
    def plan(self) -> Sequence[A]:
        """At most one action for each content. Raises NotNow while too little is known."""

    @abstractmethod
    async def act(self, action: A) -> None:
        """Do one action. Raises calls.Refused, ApiError, and what a pool raises."""

    @property
    def problems(self) -> dict[str, str]:
        """What keeps them from being cut and removed; the role is ready if empty."""
        if unread := unready(self.contents):
            return unread
        found = {f"{self._what}s": self.loop.problem} if self.loop.problem else {}
        if self._refused:
            found[f"{self._what} contents"] = min(self._refused.values())
        return found

    @abstractmethod
    def handle_told(self, content: C) -> str:
        """The handle that its status tells of, "" for none."""

    @abstractmethod
    def handle_coming(self, content: C) -> str:
        """The handle of the snapshot that is being cut for it, "" for none."""

    def told(self) -> Told:
        """What the contents of this node say is there, or is coming."""
        contents = self.contents.items.values()
        return Told(
            handles=handles_told(self.node_key, self._what, contents, self.handle_told),
            coming=handles_told(self.node_key, self._what, contents, self.handle_coming),
            unread="; ".join(unready(self.contents).values()),
        )

    def content_changed(self, *_: object) -> None:
        """A content changed."""
        self.loop.wake()
        self.on_change()

    def changed(self, *_: object) -> None:
        """A PersistentVolume of this node changed, or what else contents depend on."""
        self.loop.wake()

    def reconfigure(self, configuration: Configuration) -> None:
        """They are cut in whatever pools there are: nothing of them is configured."""

    async def run(self) -> NoReturn:
        """Never returns; on cancellation stops what is under way, and the next agent goes on."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.contents.run())
                await self.contents.answered.wait()
                await self.loop.run()
        finally:
            await self._runner.end()

    def _may_be_own(self, content: C) -> bool:
        """Contents of other drivers and nodes are not kept: there may be many."""
        return content.spec.driver == CSI_DRIVER and owner_of(content) in ("", self.node_key)

    async def _look(self) -> float:
        """Returns in how many seconds something is due; 0 if nothing is."""
        contents = self.contents.items
        try:
            actions = self.plan()
        except NotNow:
            # The role that has the pools, or reads the objects, says what is wrong with them.
            return UNKNOWN_SECONDS
        self._runner.forget_but(contents.keys())
        for name in self._refused.keys() - contents.keys():
            del self._refused[name]
        waits = []
        for action in actions:
            name = action.name
            if name in self._runner.busy:
                continue
            if (left := self._runner.left(name, action)) > 0:
                waits.append(left)
            else:
                self._runner.offer(name, action)
        return min(waits, default=0.0)

    def _ended(self, name: str, _action: A, wait: float | None) -> None:
        if wait is None:
            self._refused.pop(name, None)
        self.loop.wake()

    def _failed(self, name: str, action: A, error: Exception, failing: Failing) -> float:
        if isinstance(error, LookAgain | NotThere):
            log.debug("%s content %s: it has changed: %s", self._what, name, error)
            return failing.overtaken()
        wait = failing.again(error.after if isinstance(error, ApiError) else None)
        if isinstance(error, TellTheAdministrator):
            self._refused[name] = f"{name}: {error}"
        what = type(action).__name__
        if isinstance(error, ApiError | Refused | OSError):
            text = "%s content %s: %s: again in %.1f s: %s"
            log.warning(text, self._what, name, what, wait, error)
        else:
            text = "%s content %s: %s: again in %.1f s: a mistake of ours"
            log.error(text, self._what, name, what, wait, exc_info=error)
        return wait
