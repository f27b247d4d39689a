"""Keeps PersistentVolumes and what is on disk together: policies, deletions, growth, adoption.

Level-triggered: each look goes over all of this node's FlexVolume PersistentVolumes. What fails is
said once and tried again at the next look.

It adopts what elastic's driver made: volumes without a mark whose PersistentVolume exists. It asks
the API server about each by name. A volume that is not known there as this node's stays unmarked:
it is never removed or mounted here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.config.syntax.names import fault_of_label_value
from localvolume.flexvolume.absence import claim_of, is_proven
from localvolume.flexvolume.binding import Binding
from localvolume.flexvolume.driver import (
    TAG_POLICY,
    Driver,
    DriverFailed,
)
from localvolume.flexvolume.metrics import FlexMetrics
from localvolume.flexvolume.plan.binding import is_elastics, other_node, tags_of, why_not
from localvolume.flexvolume.plan.keep import (
    Action,
    Facts,
    Grow,
    Leave,
    LetGo,
    Note,
    TellClaimed,
    is_noted_there,
    judge,
    may_let_go,
    notes_of_the_end,
)
from localvolume.flexvolume.protocol import Refused
from localvolume.flexvolume.turns import Turns
from localvolume.host.process.workers import Hung, Workers
from localvolume.kube.cache import key_of
from localvolume.kube.client import Client
from localvolume.kube.correlate import EventType
from localvolume.kube.errors import ApiError, LookAgain, NotThere
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES
from localvolume.kube.listing import PAGE, listed
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import growing, marks
from localvolume.volumes.capacity import bytes_of, quantity
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.patches import without_finalizer

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 90.0
ACT_SECONDS: Final = 120.0
"""Deadlines of listing the volumes and of one act on one of them."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """`names` are marked now. Not `complete`: something failed, and is to be tried again."""

    names: list[str] = field(default_factory=list)
    complete: bool = True


@dataclass(eq=False, kw_only=True)
class Keeping:
    """`saw_volume` and `saw_claim` are told what the API server returns; lists are read in pages of
    `page` objects."""

    client: Client
    events: EventRecorder
    workers: Workers
    config: FlexVolumeConfig
    driver: Driver
    turns: Turns
    binding: Binding
    metrics: FlexMetrics
    node_name: str
    saw_volume: Callable[[PersistentVolume], object]
    saw_claim: Callable[[PersistentVolumeClaim], object]
    page: int = PAGE

    def __post_init__(self) -> None:
        self._said: dict[str, str] = {}

    # --- looking -------------------------------------------------------------------------------

    async def look(
        self,
        node: NodeFacts,
        volumes: Mapping[str, PersistentVolume],
        claims: Mapping[str, PersistentVolumeClaim],
    ) -> None:
        """Do what is due for every PersistentVolume of ours. Raises DriverFailed, Hung if the
        volumes of this node cannot be listed."""
        listed = await self.workers.call(
            "flexvolume volumes", LOOK_SECONDS, self.driver.list_volumes
        )
        self.metrics.volumes.set(len(listed))
        self.metrics.volumes_bytes.set(sum(one.size_bytes for one in listed))
        facts = Facts(
            node=node,
            drivers=self.config.names,
            grows=self.config.driver == "lvm",
            owned={one.name: one for one in listed},
            claims=claims,
        )
        for name, volume in volumes.items():
            try:
                said = await self._do(volume, judge(volume, facts))
            except LookAgain:
                continue  # the informer brings what it is now
            except (ApiError, DriverFailed, Hung, OSError) as error:
                said = f"nothing is done about it now: {error}"
            self._say(name, said)
        self._said = {name: text for name, text in self._said.items() if name in volumes}

    async def _do(self, volume: PersistentVolume, actions: Sequence[Action]) -> str:
        """Do the actions; returns what is to be said of them, "" if nothing is."""
        name = volume.metadata.name
        for action in actions:
            match action:
                case Leave(reason):
                    return reason
                case LetGo():
                    await self._let_go(volume)
                case Note(tags):
                    await self.turns.call(name, ACT_SECONDS, self.driver.note, name, tags)
                case TellClaimed():
                    volume = await self.binding.told(volume)
                case Grow():
                    await self._tell_grown(volume, action.claim, await self._grow(volume, action))
        return ""

    # --- the end of a PersistentVolume ---------------------------------------------------------

    async def _let_go(self, seen: PersistentVolume) -> None:
        """Note what is to become of the volume, then let the object go: in this order, so that only
        the last policy that was set decides on the removal."""
        name = seen.metadata.name
        live = await self.client.get(PERSISTENT_VOLUMES, name)
        self.saw_volume(live)
        if not may_let_go(live, seen) or await claim_of(self.client, live) is not None:
            return
        tags = notes_of_the_end(live)
        async with self.turns.of(name, ACT_SECONDS) as turn:
            listed = await turn.call(self.driver.list_volumes)
            owned = next((one for one in listed if one.name == name), None)
            if owned is not None and owned.problem:
                raise DriverFailed(owned.problem)  # nobody can tell whose it is
            if owned is None and is_elastics(live):
                await turn.call(self.driver.adopt, {name: tags})
            elif is_noted_there(live, owned):
                await turn.call(self.driver.note, name, tags)
        # Bound to the very state that was noted.
        patch = without_finalizer(live)
        self.saw_volume(await self.client.patch(PERSISTENT_VOLUMES, name, patch))
        policy = tags[TAG_POLICY]
        log.info("let go, with reclaim policy %s", policy, extra={"persistentvolume": name})

    # --- growing -------------------------------------------------------------------------------

    async def _grow(self, volume: PersistentVolume, action: Grow) -> int:
        claim, wanted = action.claim, action.size_bytes
        name, text = volume.metadata.name, quantity(wanted)
        self._say_of(claim, "Normal", "Resizing", f"growing volume {name} to {text}")
        patch = growing.resizing(claim, wanted, time.time())
        if patch is not None:
            await self._patch_status(claim, patch)
        try:
            size: int = await self.turns.call(name, ACT_SECONDS, self.driver.grow, name, wanted)
        except (DriverFailed, Hung) as error:
            why = f"volume {name} cannot grow to {text}: {error}"
            self._say_of(claim, "Warning", "VolumeResizeFailed", why)
            raise
        log.info(
            "grown from %s to %s",
            quantity(action.from_bytes),
            quantity(size),
            extra={"persistentvolume": name, "claim": key_of(claim)},
        )
        return size

    async def _tell_grown(
        self, volume: PersistentVolume, claim: PersistentVolumeClaim, size: int
    ) -> None:
        name, meta = volume.metadata.name, claim.metadata
        if bytes_of(volume.spec.capacity.get("storage", "")) != size:
            patch = growing.grown(volume, size)
            self.saw_volume(await self.client.patch(PERSISTENT_VOLUMES, name, patch))
        live = await self.client.get(CLAIMS, meta.name, meta.namespace)
        if live.metadata.uid == meta.uid:
            await self._patch_status(live, growing.claim_grown(live, size))
            text = f"volume {name} has {quantity(size)} now"
            self._say_of(claim, "Normal", "VolumeResizeSuccessful", text)

    async def _patch_status(self, claim: PersistentVolumeClaim, patch: Any) -> None:
        meta = claim.metadata
        self.saw_claim(
            await self.client.patch(CLAIMS, meta.name, patch, meta.namespace, subresource="status")
        )

    # --- elastic's -----------------------------------------------------------------------------

    async def mark_elastics(self, node: NodeFacts) -> None:
        """Put our marks on the PersistentVolumes that elastic's driver bound to this node, so that
        we hear of their deletion. Raises ApiError, Refused."""
        if marks.ELASTIC_FLEX_DRIVER not in self.config.names:
            return
        for volume in await self._labelled():
            if is_elastics(volume) and not other_node(volume, node):
                await self.binding.adopt(volume)
                extra = {"persistentvolume": volume.metadata.name}
                log.debug("marked as this node's", extra=extra)

    async def _labelled(self) -> list[PersistentVolume]:
        if fault_of_label_value(self.node_name) is not None:
            return []  # elastic's driver could bind none
        selector = f"{marks.ELASTIC_NODE_LABEL}={self.node_name}"
        return await listed(
            self.client, PERSISTENT_VOLUMES, label_selector=selector, page=self.page
        )

    async def adopt(self, node: NodeFacts) -> Adopted:
        """Look once at all that carries no mark. Never raises for what a host or API server does.

        Stops at the first error of the API server.
        """
        try:
            unmarked = await self.workers.call(
                "flexvolume unmarked", LOOK_SECONDS, self.driver.unmarked
            )
        except (DriverFailed, Hung, OSError) as error:
            log.warning("nothing is adopted: %s", error)
            return Adopted(complete=False)
        names: list[str] = []
        complete = True
        for name in unmarked:
            try:
                if await self._adopt(name, node):
                    names.append(name)
            except ApiError as error:
                log.warning("not adopted: %s", error, extra={"persistentvolume": name})
                return Adopted(names, complete=False)
            except (DriverFailed, Refused, Hung, OSError) as error:
                log.warning("not adopted: %s", error, extra={"persistentvolume": name})
                complete = False
        return Adopted(names, complete)

    async def _adopt(self, name: str, node: NodeFacts) -> bool:
        try:
            live = await self.client.get(PERSISTENT_VOLUMES, name)
        except NotThere as error:
            if not is_proven(error):
                raise
            return False
        if reason := why_not(live, self.config.names, node):
            log.info("left as it is: %s", reason, extra={"persistentvolume": name})
            return False
        async with self.turns.of(name, ACT_SECONDS) as turn:
            # The object first: without our finalizer on it, we would miss its deletion.
            live = await self.binding.adopt(live)
            adopted: list[str] = await turn.call(self.driver.adopt, {name: tags_of(live)})
        if adopted:
            log.info("adopted from elastic's driver", extra={"persistentvolume": name})
        return bool(adopted)

    # --- telling -------------------------------------------------------------------------------

    def _say(self, name: str, text: str) -> None:
        """Say it once, until there is something else to say, or nothing ("")."""
        if not text:
            self._said.pop(name, None)
        elif self._said.get(name) != text:
            self._said[name] = text
            log.warning("%s", text, extra={"persistentvolume": name})

    def _say_of(
        self, claim: PersistentVolumeClaim, type_: EventType, reason: str, text: str
    ) -> None:
        self.events.event(ObjectRef.of_claim(claim.metadata), type_, reason, text)
