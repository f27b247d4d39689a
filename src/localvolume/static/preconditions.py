"""Checks what an action relies on again at the moment of acting: at the API server and the disk.

If the answer differs from what the plan was made from, `Superseded` ends the action, and everything
is planned again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from localvolume.cleaning.method import VolumeKind
from localvolume.cleaning.receipt import CleaningRefused
from localvolume.cleaning.target import Target
from localvolume.host.block.sysfs import base_of, disk_of
from localvolume.host.process.workers import Workers
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError, NotThere
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume
from localvolume.static.facts.survey import PodsUnseen, Survey
from localvolume.static.model import Entry
from localvolume.static.strangers import BURST_SECONDS, NameUnreadable, Strangers
from localvolume.volumes.identity import unchanged
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.objects import is_finalized, is_held_by_claim, is_to_be_cleaned
from localvolume.volumes.patches import without_finalizer

log = logging.getLogger(__name__)


class Superseded(Exception):
    """The action was planned for what is no longer so: plan again."""


@dataclass(eq=False)
class Confirm:
    """The questions; `saw(volume)` is told what the API server returned."""

    client: Client
    survey: Survey
    workers: Workers
    saw: Callable[[PersistentVolume], object]

    def __post_init__(self) -> None:
        self._strangers = Strangers(self.client, self.workers)

    # --- the API server ------------------------------------------------------------------------

    async def live(self, volume: PersistentVolume) -> PersistentVolume:
        """The object as it is now. Raises Superseded if it is gone or another has its name."""
        try:
            live = await self.client.get(PERSISTENT_VOLUMES, volume.metadata.name)
        except NotThere:
            raise Superseded(f"{volume.metadata.name} is gone") from None
        if live.metadata.uid != volume.metadata.uid:
            raise Superseded(f"{volume.metadata.name} is another object now")
        return live

    async def still_to_be_cleaned(self, volume: PersistentVolume) -> PersistentVolume:
        """The object as it is now. Raises Superseded unless it still asks for a cleaning."""
        live = await self.live(volume)
        if not is_to_be_cleaned(live):
            raise Superseded(f"{live.metadata.name} is not to be cleaned any more")
        return live

    async def named_by_none(self, entry: Entry, node: NodeFacts) -> None:
        """Raises CleaningRefused if any PersistentVolume may mean what is at the entry.

        It may be anybody's and of any class: nobody watches objects without our label.
        """
        try:
            found = (await self._strangers.named(node)).stranger(entry)
        except NameUnreadable as error:
            raise CleaningRefused(str(error)) from error
        if found:
            text = f"the PersistentVolume {found[0]} names {found[1]}"
            raise CleaningRefused(f"{text}: the data may be somebody's")

    async def offered_by_another(
        self, entry: Entry, node: NodeFacts, own: Collection[str]
    ) -> str | None:
        """Like `Named.why_not_offered`, with a list that serves a burst of offers.

        Raises the errors of kube.errors, and Hung.
        """
        named = await self._strangers.named(node, BURST_SECONDS)
        return named.why_not_offered(entry, own)

    async def on_a_disk_of_others(
        self, entry: Entry, node: NodeFacts, oldest_seconds: float = 0.0
    ) -> str | None:
        """Like `Named.same_disk`, for classes whose disks several nodes see.

        Raises the errors of kube.errors, and Hung.
        """
        return (await self._strangers.named(node, oldest_seconds)).same_disk(entry)

    async def let_go(self, volume: PersistentVolume) -> None:
        """Remove our finalizer, if nothing about the object has changed since."""
        name = volume.metadata.name
        try:
            patch = without_finalizer(volume)
            self.saw(await self.client.patch(PERSISTENT_VOLUMES, name, patch))
        except NotThere:
            log.debug("%s is gone already", name)

    async def let_go_once_clean(
        self, volume: PersistentVolume, check: Callable[[PersistentVolume], Awaitable[None]]
    ) -> None:
        """Remove the finalizer after a cleaning, trying for as long as that takes.

        The cleaning is done: only this last write is repeated, never the cleaning, even if an
        administrator must first allow the write. `check` is called right before it; whatever it
        raises except ApiError ends the attempts.

        Raises Superseded if a claim has come to hold the object: a claim that names it gets it even
        while it is being deleted, and it stays until that claim is gone.
        """
        name, backoff = volume.metadata.name, Backoff(0.25)
        while True:
            try:
                # Cleaning took its time: others may have changed the object since.
                volume = await self.live(volume)
                await check(volume)
                if is_held_by_claim(volume):
                    raise Superseded(f"{name} is held by a claim again")
                if is_finalized(volume):
                    await self.let_go(volume)
                return
            except ApiError as error:
                log.warning("%s is clean; its finalizer stays for now: %s", name, error)
                await asyncio.sleep(backoff.next(error.after))

    # --- the disk ------------------------------------------------------------------------------

    async def still(self, entry: Entry, *, offered: bool = False) -> Entry:
        """The entry, read again. Raises Superseded if it is not what the plan was made for."""
        fresh = await self.survey.read_now(entry, offered=offered)
        if fresh.problem is not None:
            raise Superseded(f"{entry.path}: {fresh.problem.text}")
        comparison = unchanged(entry.identity, fresh.identity)
        if comparison.verdict != "same" or fresh.size_bytes != entry.size_bytes:
            raise Superseded(f"{entry.path} has changed: {comparison.reason or 'its size'}")
        return fresh

    async def free_to_be_cleaned(
        self, planned: Entry, shared_with: NodeFacts | None = None
    ) -> Entry:
        """The entry, read again. Raises CleaningRefused if a pod has it mounted or nobody can tell.

        With `shared_with`, this node, also if another node's object has the same disk.
        """
        entry = await self.still(planned, offered=True)
        if shared_with and (why := await self.on_a_disk_of_others(entry, shared_with)):
            raise CleaningRefused(why)
        try:
            pods = await self.survey.mounted_by_pods(entry)
        except PodsUnseen as error:
            raise CleaningRefused(str(error)) from error
        if pods:
            raise CleaningRefused(f"a pod still has it mounted: {', '.join(pods)}")
        return entry

    async def mounted_by_none(self, entry: Entry) -> None:
        """Raises Superseded if a pod has it mounted, or nobody can tell.

        Perhaps nobody has stopped the pods of the claim that had it.
        """
        try:
            pods = await self.survey.mounted_by_pods(entry)
        except PodsUnseen as error:
            raise Superseded(f"{entry.path}: {error}") from error
        if pods:
            raise Superseded(f"{entry.path}: a pod still has it mounted: {', '.join(pods)}")

    async def disk_of(self, entry: Entry) -> str:
        """The disk under a device or partition: what two cleanings at once would slow down."""
        return await self.workers.call(entry.device, 5.0, _disk_of, entry.device)


def target_of(entry: Entry) -> Target:
    """What is to be cleaned, with everything that it is known by."""
    kind: VolumeKind = "block" if entry.kind == "block" else "filesystem"
    return Target(kind, entry.path, entry.device, entry.mount_id, identity=entry.identity)


def _disk_of(device: str) -> str:
    return disk_of(base_of(device))
