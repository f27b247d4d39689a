"""Does one step about one dynamic volume: writes to the pool and to the API server, decides
nothing.

Every write to the API server names the very object and the state in which it was seen; what
destroys is asked once more right before (live.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from localvolume.backends.model import BackendFailed, NoRoom, Record
from localvolume.config.pools import PoolConfig
from localvolume.dynamic import patches
from localvolume.dynamic.classes.parameters import read_claim
from localvolume.dynamic.manifest import persistent_volume
from localvolume.dynamic.model import (
    Ask,
    Delete,
    Facts,
    GiveBack,
    Grow,
    Make,
    MarkReleased,
    Publish,
    Purge,
    Reject,
    Remember,
    Retire,
    Secure,
    Step,
    TakeAway,
    TellGrown,
)
from localvolume.dynamic.plan.claims import EVENT_RESIZE_FAILED
from localvolume.dynamic.pools import Pools
from localvolume.dynamic.preconditions import Live, Superseded
from localvolume.dynamic.telemetry import DynamicTelemetry
from localvolume.kube.cache import key_of
from localvolume.kube.client import Client
from localvolume.kube.correlate import EventType, ObjectRef
from localvolume.kube.errors import AlreadyThere, NotThere
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import claims
from localvolume.volumes.capacity import quantity
from localvolume.volumes.manifest import PublishingOptions
from localvolume.volumes.objects import is_finalized
from localvolume.volumes.patches import secured, without_finalizer

log = logging.getLogger(__name__)

_PROGRESS_SECONDS = 30.0


@dataclass(eq=False, kw_only=True)
class Acts:
    """The steps, one method each; `saw_volume` and `saw_claim` are told what the server says.

    `written_now` is the time at which a volume is written down as released.
    """

    client: Client
    events: EventRecorder
    pools: Pools
    live: Live
    telemetry: DynamicTelemetry
    node_name: str
    options: Callable[[], PublishingOptions]
    saw_volume: Callable[[PersistentVolume], object]
    saw_claim: Callable[[PersistentVolumeClaim], object]
    written_now: Callable[[], float] = time.time

    def stop(self) -> None:
        """Purges end between two files; they are begun again by the next agent."""
        self.pools.stop_purges()

    async def do(self, step: Step, facts: Facts) -> None:
        """Raises Superseded, BackendFailed, Hung, OSError and the errors of kube.errors."""
        match step:
            case Make():
                await self._make(step, facts)
            case Publish():
                await self._publish(step, facts, time.monotonic())
            case GiveBack():
                await self._give_back(step.claim, step.reason)
            case Reject():
                self.failed(step.claim, step.reason)
            case Ask():
                await self.live.ask(step.record)
            case TakeAway():
                await self._take_away(step)
            case Remember():
                uid = step.volume.metadata.uid
                await self.pools.offered(step.pool, step.record, uid, step.given)
            case Secure():
                await self._patch_volume(step.volume, secured(step.volume))
            case MarkReleased():
                since = None if step.again else self.written_now()
                patch = patches.released(step.volume, since, step.period)
                await self._patch_volume(step.volume, patch)
                if not step.again:
                    self.say_of_volume(step.volume, "Normal", "VolumeReleased", step.reason)
                log.info("%s", step.reason, extra=log_fields(step))
            case Grow():
                await self._grow(step)
            case TellGrown():
                await self._tell_grown(step.claim, step.volume, step.size_bytes)
            case Delete():
                await self._delete(step)
            case Retire():
                await self._retire(step)
            case Purge():
                await self._purge(step)

    # --- making --------------------------------------------------------------------------------

    async def _make(self, step: Make, facts: Facts) -> None:
        claim, began = step.claim, time.monotonic()
        if step.fresh:
            text = f'provisioning volume for claim "{key_of(claim)}"'
            self.say_of_claim(claim, "Normal", "Provisioning", text)
        try:
            record = await self.pools.make(step.pool, step.record)
        except NoRoom as error:
            await self.pools.take_away(step.pool, step.record)
            text = f"node {self.node_name}: pool {step.pool.name}: {error}"
            await self._give_back(claim, text)
            return
        log.info("made %s", quantity(record.size_bytes), extra=log_fields(step))
        publish = Publish(
            key=step.key,
            reason=step.reason,
            claim=claim,
            pool=step.pool,
            pool_id=self.pools.id_of(step.pool),
            record=record,
        )
        await self._publish(publish, facts, began)

    async def _publish(self, step: Publish, facts: Facts, began: float) -> None:
        """`began`: when it was begun to be made, or only to be published (time.monotonic)."""
        claim, class_facts = step.claim, facts.classes.get(claims.class_of(step.claim))
        if class_facts is None:
            raise Superseded(f"the class of {key_of(claim)} is gone")
        record = step.record
        body = persistent_volume(
            record,
            claim=claim,
            class_facts=class_facts,
            pool=step.pool,
            pool_id=step.pool_id,
            host_path=self.pools.host_path(step.pool, record),
            source=read_claim(claim, class_facts),
            node=facts.node,
            options=self.options(),
        )
        # Written down first: from the request on, a tenant may have it.
        record = await self.pools.offered(step.pool, record, "")
        try:
            made = await self.client.create(PERSISTENT_VOLUMES, body)
        except AlreadyThere:
            made = await self._same(body)
        self.saw_volume(made)
        self.live.forget(record.name)
        await self.pools.offered(step.pool, record, made.metadata.uid)
        text = f"successfully provisioned volume {record.name}"
        self.say_of_claim(claim, "Normal", "ProvisioningSucceeded", text)
        self.telemetry.made(record.class_name, time.monotonic() - began)
        log.info("published", extra=log_fields(step))

    async def _same(self, body: dict[str, Any]) -> PersistentVolume:
        """The object that has the name already, if it is the very one that was to be created."""
        name = body["metadata"]["name"]
        try:
            there = await self.client.get(PERSISTENT_VOLUMES, name)
        except NotThere:
            raise Superseded(f"{name} was there, and is gone") from None
        wanted = body["metadata"]["annotations"]
        ref = there.spec.claim_ref
        same = all(there.metadata.annotations.get(key) == wanted[key] for key in wanted)
        if not same or ref is None or ref.uid != body["spec"]["claimRef"]["uid"]:
            raise BackendFailed(f"another PersistentVolume has the name {name} already")
        return there

    async def _give_back(self, claim: PersistentVolumeClaim, reason: str) -> None:
        self.failed(claim, f"{reason}; another node is to be chosen")
        meta = claim.metadata
        why = reason.removeprefix(f"node {self.node_name}: ")
        patch = patches.given_back(claim, self.node_name, time.time(), why)
        try:
            self.saw_claim(await self.client.patch(CLAIMS, meta.name, patch, meta.namespace))
        except NotThere:
            raise Superseded(f"{key_of(claim)} is gone") from None
        log.info("given back: %s", reason, extra={"claim": key_of(claim)})

    def failed(self, claim: PersistentVolumeClaim, reason: str) -> None:
        """Count it, and tell the claim's owner why it has no volume."""
        self.telemetry.failed(claims.class_of(claim))
        log.warning("%s", self.say_failed(claim, reason), extra={"claim": key_of(claim)})

    def count_failure(self, step: Step) -> None:
        """As sig-storage's provisioner does: each attempt to make or to remove that was in vain,
        and to grow."""
        match step:
            case Make() | Publish():
                self.telemetry.failed(claims.class_of(step.claim))
            case Delete() | Retire():
                self.telemetry.not_removed(step.volume.spec.storage_class_name)
            case Grow():
                self.telemetry.not_grown(claims.class_of(step.claim))

    def cannot_grow(self, claim: PersistentVolumeClaim, reason: str) -> None:
        """Count it, and tell the claim's owner why its volume is as large as it was."""
        self.telemetry.not_grown(claims.class_of(claim))
        self.say_of_claim(claim, "Warning", EVENT_RESIZE_FAILED, reason)

    def say_failed(self, claim: PersistentVolumeClaim, reason: str) -> str:
        """Tell the claim's owner why it has no volume; what was said."""
        text = f"failed to provision volume: {reason}"
        self.say_of_claim(claim, "Warning", "ProvisioningFailed", text)
        return text

    async def _take_away(self, step: TakeAway) -> None:
        if not step.spare:
            await self.live.ask(step.record)
            names, uids, _ = self.live.unwanted()
            if step.record.name not in names or step.record.claim_uid not in uids:
                raise Superseded(f"{step.record.name} is wanted after all")
        await self.pools.take_away(step.pool, step.record)
        log.info("taken away: %s", step.reason, extra=log_fields(step))

    # --- growing -------------------------------------------------------------------------------

    async def _grow(self, step: Grow) -> None:
        claim, size = step.claim, step.size_bytes
        text = f"growing volume {step.key} to {quantity(size)}"
        self.say_of_claim(claim, "Normal", "Resizing", text)
        patch = patches.resizing(claim, size, time.time())
        if patch is not None:
            claim = await self._patch_status(claim, patch)
        grown = await self.pools.grow(step.pool, step.record, size)
        # What it has, not what was asked for: the size of a logical volume is rounded up.
        size = grown.size_bytes
        log.info("grown to %s", quantity(size), extra=log_fields(step))
        await self._tell_grown(claim, step.volume, size)

    async def _tell_grown(
        self, claim: PersistentVolumeClaim, volume: PersistentVolume, size: int
    ) -> None:
        if volume.spec.capacity.get("storage") != quantity(size):
            await self._patch_volume(volume, patches.grown(volume, size))
        await self._patch_status(claim, patches.claim_grown(claim, size))
        text = f"volume {volume.metadata.name} has {quantity(size)} now"
        self.say_of_claim(claim, "Normal", "VolumeResizeSuccessful", text)

    async def _patch_status(
        self, claim: PersistentVolumeClaim, patch: Any
    ) -> PersistentVolumeClaim:
        meta = claim.metadata
        patched = await self.client.patch(
            CLAIMS, meta.name, patch, meta.namespace, subresource="status"
        )
        self.saw_claim(patched)
        return patched

    # --- removing ------------------------------------------------------------------------------

    async def _delete(self, step: Delete) -> None:
        live = await self.live.to_be_deleted(step.volume)
        if not is_finalized(live):
            live = await self._patch_volume(live, secured(live))
        meta = live.metadata
        try:
            await self.client.delete(
                PERSISTENT_VOLUMES, meta.name, uid=meta.uid, resource_version=meta.resource_version
            )
        except NotThere:
            raise Superseded(f"{meta.name} is gone") from None
        log.info("deleting: %s", step.reason, extra=log_fields(step))

    async def _retire(self, step: Retire) -> None:
        began = time.monotonic()
        live = await self.live.to_be_retired(step.volume)
        removed = await self._move_away(step, live)
        try:
            patch = without_finalizer(live)
            self.saw_volume(await self.client.patch(PERSISTENT_VOLUMES, live.metadata.name, patch))
        except NotThere:
            log.debug("%s is gone already", live.metadata.name)
        if removed:
            self.telemetry.removed(live.spec.storage_class_name, time.monotonic() - began)

    async def _move_away(self, step: Retire, live: PersistentVolume) -> bool:
        """Whether it was, and not only let go with its data where that is."""
        record = step.record
        if step.pool is None:
            log.warning("let go: %s", step.reason, extra=log_fields(step))
            return False
        if step.keep:
            if record is not None:
                await self.pools.forget(step.pool, record)
            log.warning("let go, and its data kept, as its policy says", extra=log_fields(step))
            return False
        if record is None:
            record = await self.pools.adopt(step.pool, step.directory, live)
        await self.pools.retire(step.pool, record)
        log.info("removed", extra=log_fields(step))
        return True

    async def _purge(self, step: Purge) -> None:
        def report(files: int, size: int) -> None:
            self.telemetry.purging(step.key, files, size)

        began = time.monotonic()
        try:
            await self.pools.purge(step.pool, step.record, report)
        finally:
            self.telemetry.purge_over(step.key)
        log.info("purged in %.1f s", time.monotonic() - began, extra=log_fields(step))

    # --- common --------------------------------------------------------------------------------

    async def _patch_volume(self, volume: PersistentVolume, patch: Any) -> PersistentVolume:
        patched = await self.client.patch(PERSISTENT_VOLUMES, volume.metadata.name, patch)
        self.saw_volume(patched)
        return patched

    def say_of_claim(
        self, claim: PersistentVolumeClaim, type_: EventType, reason: str, text: str
    ) -> None:
        self.events.event(ObjectRef.of_claim(claim.metadata), type_, reason, text)

    def say_of_volume(
        self, volume: PersistentVolume, type_: EventType, reason: str, text: str
    ) -> None:
        self.events.event(ObjectRef.of_volume(volume.metadata), type_, reason, text)


def log_fields(step: Step) -> dict[str, str]:
    """What a log record about a step says of it, as fields."""
    about = {"persistentvolume": step.key, "reason": step.reason}
    claim: PersistentVolumeClaim | None = getattr(step, "claim", None)
    record: Record | None = getattr(step, "record", None)
    pool: PoolConfig | None = getattr(step, "pool", None)
    volume: PersistentVolume | None = getattr(step, "volume", None)
    if volume is not None:
        about["class"] = volume.spec.storage_class_name
    elif record is not None:
        about["class"] = record.class_name
    elif claim is not None:
        about["class"] = claims.class_of(claim)
    if claim is not None:
        about["claim"] = key_of(claim)
    elif record is not None and record.claim:
        about["claim"] = record.claim
    if pool is not None:
        about["pool"] = pool.name
    return about


__all__ = ["Acts", "Superseded"]
