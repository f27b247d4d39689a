"""Does one action about a FlexVolume claim or PersistentVolume, after a last live look at it.

The caches keep little of a claim, and a watch may be late: what an action rests on is read whole
from the API server, and the same rules must still call for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from localvolume.controller.caches.trimmed import VOLUMES, KnownVolume
from localvolume.controller.metrics import ControllerMetrics
from localvolume.controller.volumes.preconditions import Superseded
from localvolume.flexvolume.plan.absence import is_proven
from localvolume.flexvolume.plan.provision import (
    EVENT_FAILED,
    Action,
    Claim,
    Provision,
    Refuse,
    is_made_for,
)
from localvolume.flexvolume.plan.release import EVENT_FAILED_DELETE, Delete, Hold
from localvolume.kube.cache import key_of
from localvolume.kube.client import Client
from localvolume.kube.correlate import EventType
from localvolume.kube.errors import AlreadyThere, ApiError, LookAgain, NotThere, TryAgainLater
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.kinds import CLAIMS
from localvolume.volumes import claims
from localvolume.volumes.patches import secured

log = logging.getLogger(__name__)

Due = Provision | Delete
"""What there is to do; of all else that can be decided, people are told at most."""

_SOURCE = ""
"""The library's label `source` tells what a claim is filled from; ours are never filled."""


@dataclass(eq=False, kw_only=True)
class FlexActs:
    """`claim_again` and `volume_again` decide anew about what was just read; `saw` is told what the
    API server returned, `cannot` what turned out to be refused or held."""

    client: Client
    events: EventRecorder
    metrics: ControllerMetrics
    claim_again: Callable[[Claim], Action]
    volume_again: Callable[[KnownVolume, Claim | None], Action]
    saw: Callable[[KnownVolume], object]
    cannot: Callable[[Refuse | Hold], None]

    async def do(self, action: Due) -> None:
        """Raises Superseded, NotLeading, and the errors of kube.errors."""
        if isinstance(action, Provision):
            await self._provision(action)
        else:
            await self._delete(action)

    # --- claims --------------------------------------------------------------------------------

    async def _provision(self, action: Provision) -> None:
        meta = action.claim.metadata
        try:
            claim = await self.client.get(CLAIMS, meta.name, meta.namespace)
        except NotThere:
            return
        if claim.metadata.uid != meta.uid:
            raise Superseded(f"{key_of(claim)} is another object now")
        match again := self.claim_again(claim):
            case Refuse():
                self.cannot(again)
            case Provision():
                await self._create(again)
            case _:
                raise Superseded(f"{key_of(claim)}: {again.reason}")

    async def _create(self, action: Provision) -> None:
        claim, name = action.claim, action.body["metadata"]["name"]
        key, class_name = key_of(claim), claims.class_of(claim)
        self.say_of_claim(claim, "Normal", "Provisioning", f'provisioning volume for claim "{key}"')
        try:
            volume = await self.client.create(VOLUMES, action.body)
        except AlreadyThere:
            volume = await self._there(name)
            if not is_made_for(volume, claim):
                text = f"another PersistentVolume has the name {name} already"
                self.cannot(Refuse(text, claim))
                return
        except (LookAgain, TryAgainLater):
            self.metrics.not_provisioned.labels(class_name, _SOURCE).inc()
            raise
        except ApiError as error:
            self.metrics.not_provisioned.labels(class_name, _SOURCE).inc()
            text = f"the PersistentVolume cannot be created: {error}"
            self.say_of_claim(claim, "Warning", EVENT_FAILED, text)
            raise
        self.saw(volume)
        self.metrics.provisioned.labels(class_name, _SOURCE).inc()
        text = f"successfully provisioned volume {name}"
        self.say_of_claim(claim, "Normal", "ProvisioningSucceeded", text)
        log.info("made for %s: %s", key, action.reason, extra={"persistentvolume": name})

    async def _there(self, name: str) -> KnownVolume:
        try:
            return await self.client.get(VOLUMES, name)
        except NotThere:
            raise Superseded(f"{name} was there, and is gone") from None

    # --- volumes -------------------------------------------------------------------------------

    async def _delete(self, action: Delete) -> None:
        seen = action.volume.metadata
        try:
            volume = await self.client.get(VOLUMES, seen.name)
        except NotThere:
            return
        if volume.metadata.uid != seen.uid:
            raise Superseded(f"{seen.name} is another object now")
        match again := self.volume_again(volume, await self._claim_of(volume)):
            case Hold():
                self.cannot(again)
            case Delete():
                await self._remove(volume, again)
            case _:
                raise Superseded(f"{seen.name}: {again.reason}")

    async def _claim_of(self, volume: KnownVolume) -> Claim | None:
        """The very claim that the volume names, if it still exists, whatever the phase says."""
        ref = volume.spec.claim_ref
        if ref is None or not ref.uid:
            return None
        try:
            claim = await self.client.get(CLAIMS, ref.name, ref.namespace)
        except NotThere as error:
            if not is_proven(error):
                raise
            return None
        return claim if claim.metadata.uid == ref.uid else None

    async def _remove(self, volume: KnownVolume, action: Delete) -> None:
        name, class_name = volume.metadata.name, volume.spec.storage_class_name
        try:
            if action.secure:
                volume = await self.client.patch(VOLUMES, name, secured(volume))
                self.saw(volume)
            await self.client.delete(
                VOLUMES,
                name,
                uid=volume.metadata.uid,
                resource_version=volume.metadata.resource_version,
            )
        except NotThere:
            return
        except LookAgain:
            raise
        except ApiError as error:
            self.metrics.flex_not_deleted.labels(class_name).inc()
            text = f"the PersistentVolume cannot be deleted: {error}"
            self.say_of_volume(volume, "Warning", EVENT_FAILED_DELETE, text)
            raise
        self.metrics.flex_deleted.labels(class_name).inc()
        log.info("deleted: %s", action.reason, extra={"persistentvolume": name})

    # --- telling -------------------------------------------------------------------------------

    def say_of_claim(self, claim: Claim, type_: EventType, reason: str, text: str) -> None:
        self.events.event(ObjectRef.of_claim(claim.metadata), type_, reason, text)

    def say_of_volume(self, volume: KnownVolume, type_: EventType, reason: str, text: str) -> None:
        self.events.event(ObjectRef.of_volume(volume.metadata), type_, reason, text)
