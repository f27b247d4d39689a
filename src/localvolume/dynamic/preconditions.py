"""Asks the API server again, at the moment of acting, what an action relies on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from localvolume.backends.model import Record
from localvolume.dynamic.calls import InUse, NotNow
from localvolume.dynamic.plan.given import is_made_anew, is_to_be_noted, kept_from
from localvolume.dynamic.plan.volumes import never_bound
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError, NotThere
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import claims, marks
from localvolume.volumes.objects import (
    claim_of,
    is_being_deleted,
    is_finalized,
    is_held_by_claim,
)

FRESH_SECONDS = 10.0
"""How long an answer counts; the plan that asked for it is made again at once."""

NAMED_SECONDS = 60.0
"""How long we do not ask again for a PersistentVolume that was found but that no watch of ours
reports: it may never go."""


class Superseded(Exception):
    """The reason for the action no longer holds: plan again."""


@dataclass(eq=False)
class Live:
    """The questions to the API server; `saw(volume)` is told what it returned.

    `is_elsewhere(volume)`: whether it surely lies on another node.
    `unwanted_seconds`: how long a volume must have been wanted by nobody before that is believed: a
    request from a killed agent may still be on its way through the API server. `clock` gives
    seconds.
    """

    client: Client
    node_name: str
    saw: Callable[[PersistentVolume], object]
    is_elsewhere: Callable[[PersistentVolume], bool]
    unwanted_seconds: float
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._unwanted: dict[str, tuple[float, float, str]] = {}
        self._named: dict[str, float] = {}

    async def volume(self, volume: PersistentVolume) -> PersistentVolume:
        """The object as it is now; Superseded if it is gone or another one has its name."""
        try:
            live = await self.client.get(PERSISTENT_VOLUMES, volume.metadata.name)
        except NotThere:
            raise Superseded(f"{volume.metadata.name} is gone") from None
        if live.metadata.uid != volume.metadata.uid:
            raise Superseded(f"{volume.metadata.name} is another object now")
        self.saw(live)
        return live

    async def to_be_deleted(self, volume: PersistentVolume) -> PersistentVolume:
        """The object; Superseded unless its claim is gone and nothing else has changed."""
        live = await self.volume(volume)
        if (
            is_being_deleted(live)
            or live.status.phase != "Released"
            or live.spec.persistent_volume_reclaim_policy != "Delete"
        ):
            raise Superseded(f"{live.metadata.name} is not to be deleted any more")
        if not claim_of(live):
            raise Superseded(f"{live.metadata.name} is kept for a claim that is yet to come")
        told, knew = live.metadata.annotations, volume.metadata.annotations
        if any(told.get(key) != knew.get(key) for key in marks.OF_RELEASED):
            raise Superseded(f"until when {live.metadata.name} is kept has changed")
        if await self._claim_of(live) is not None:
            raise Superseded(f"the claim of {live.metadata.name} is still there")
        return live

    async def to_be_retired(self, volume: PersistentVolume) -> PersistentVolume:
        """The object; Superseded unless it is being deleted and nobody has it any more."""
        live = await self.volume(volume)
        name = live.metadata.name
        if live.status.phase == "Bound" or not is_being_deleted(live) or not is_finalized(live):
            raise Superseded(f"{name} is not to be removed any more")
        # The policy decides whether the data goes, and may become Retain at the last moment.
        policy = volume.spec.persistent_volume_reclaim_policy
        if live.spec.persistent_volume_reclaim_policy != policy:
            raise Superseded(f"the reclaim policy of {name} is not {policy} any more")
        claim = await self._claim_of(live)
        if claim is None and is_held_by_claim(live):
            raise Superseded(f"the claim of {name} is gone, and its phase does not say so yet")
        if claim is not None and not never_bound(live, claim):
            raise Superseded(f"the claim of {name} is still there")
        return live

    async def held_by_nobody(self, name: str) -> None:
        """Raises InUse if a PersistentVolume of that name has a claim, and ApiError."""
        try:
            live = await self.client.get(PERSISTENT_VOLUMES, name)
        except NotThere:
            return
        if is_held_by_claim(live) or await self._claim_of(live) is not None:
            raise InUse(f"the PersistentVolume {name} has a claim")

    async def claim_may_have(self, record: Record, seen: PersistentVolume | None) -> None:
        """Raises NotNow unless the claim that the PersistentVolume names may have what is in it.

        `seen` is the object as the watch has it. The API server is asked only where several claims
        had the volume: the watch may lag behind one that was set back.
        """
        doubtful = seen is not None and (is_to_be_noted(seen, record) or is_made_anew(seen, record))
        if not record.generation and not doubtful:
            return
        try:
            live = await self.client.get(PERSISTENT_VOLUMES, record.name)
        except NotThere:
            raise NotNow(f"{record.name} has no PersistentVolume that says whose it is") from None
        except ApiError as error:
            raise NotNow(f"it could not be asked whose {record.name} is now: {error}") from error
        if why := kept_from(live, record):
            raise NotNow(f"{record.name} is kept from its claim: {why}")
        if is_to_be_noted(live, record):
            raise NotNow(f"that {record.name} has another claim is not noted in its pool yet")

    async def _claim_of(self, live: PersistentVolume) -> PersistentVolumeClaim | None:
        """The claim that the volume names, if it still exists, whatever the phase says."""
        ref = live.spec.claim_ref
        if ref is None or not ref.uid:
            return None
        try:
            claim = await self.client.get(CLAIMS, ref.name, ref.namespace)
        except NotThere:
            return None
        return claim if claim.metadata.uid == ref.uid else None

    # --- volumes that nobody seems to want -----------------------------------------------------

    async def ask(self, record: Record) -> None:
        """Learn whether the record's claim and PersistentVolume are really gone; remember it."""
        now = self.clock()
        if not await self._is_unwanted(record):
            self._unwanted.pop(record.name, None)
            return
        since, _, _ = self._unwanted.get(record.name, (now, now, ""))
        self._unwanted[record.name] = (since, now, record.claim_uid)

    async def _is_unwanted(self, record: Record) -> bool:
        self._named.pop(record.name, None)
        try:
            there = await self.client.get(PERSISTENT_VOLUMES, record.name)
        except NotThere:
            pass
        else:
            if claim_of(there) == record.claim_uid and self.is_elsewhere(there):
                # This node was away, and another one has served the claim: this node can never
                # publish a volume by this name.
                return True
            self.saw(there)
            self._named[record.name] = self.clock()
            return False
        namespace, _, name = record.claim.partition("/")
        try:
            claim = await self.client.get(CLAIMS, name, namespace)
        except NotThere:
            return True
        if claim.metadata.uid != record.claim_uid:
            return True
        if claim.spec.volume_name:
            return claim.spec.volume_name != record.name
        return self._is_for_another(claim, record)

    def _is_for_another(self, claim: PersistentVolumeClaim, record: Record) -> bool:
        """Whether it is not this node's to serve. A copy is, whichever node is selected."""
        selected = claims.selected_node(claim)
        if selected and not record.made_from and selected != self.node_name:
            return True
        return claim.metadata.labels.get(marks.NODE_LABEL) != marks.node_key(self.node_name)

    def unwanted(self) -> tuple[Collection[str], Collection[str], float]:
        """The names of PersistentVolumes that are not there, the UIDs of claims that are not ours
        to serve, and the seconds until the next answer counts (0: none is awaited)."""
        now = self.clock()
        self._unwanted = {
            name: told for name, told in self._unwanted.items() if now - told[1] < FRESH_SECONDS
        }
        counts = {
            name: uid
            for name, (since, _, uid) in self._unwanted.items()
            if now - since >= self.unwanted_seconds
        }
        waits = [
            self.unwanted_seconds - (now - since)
            for since, _, _ in self._unwanted.values()
            if now - since < self.unwanted_seconds
        ]
        return set(counts), set(counts.values()), min(waits, default=0.0)

    def named(self) -> Collection[str]:
        """The names of PersistentVolumes that were found and may lie here."""
        now = self.clock()
        self._named = {
            name: since for name, since in self._named.items() if now - since < NAMED_SECONDS
        }
        return set(self._named)

    def forget(self, name: str) -> None:
        """Forget what was heard of it."""
        self._unwanted.pop(name, None)
        self._named.pop(name, None)
