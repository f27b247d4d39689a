"""Does one action on one dynamic volume, in its pool and at the API server. Decides nothing.

Every write to the API server names the very object and the version that was seen. Right before
anything is destroyed, the API server is asked again (``preconditions``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from localvolume.backends.held import used_by
from localvolume.backends.model import BackendFailed, Busy, Fill, NoSpace, Record
from localvolume.backends.store import Store
from localvolume.config.pools import PoolConfig
from localvolume.dynamic import groups, patches
from localvolume.dynamic.called import Calls
from localvolume.dynamic.calls import Volume
from localvolume.dynamic.classes.parameters import read_claim
from localvolume.dynamic.inline import Pods
from localvolume.dynamic.manifest import persistent_volume
from localvolume.dynamic.metrics import SOURCE, DynamicMetrics
from localvolume.dynamic.model import (
    Action,
    Ask,
    AskPod,
    CutGroup,
    Delete,
    Facts,
    GiveBack,
    Grow,
    GrowCalled,
    Make,
    MakeCalled,
    MarkReleased,
    Modify,
    ModifyCalled,
    Publish,
    Purge,
    Reject,
    Remember,
    RemoveCalled,
    RemoveGroup,
    RemoveInline,
    Retire,
    Secure,
    TakeAway,
    TakeOver,
    TellGrown,
    TellInfeasible,
    TellModify,
    Unprotect,
)
from localvolume.dynamic.modifying import Modifying
from localvolume.dynamic.origins import Origins
from localvolume.dynamic.plan.given import claims_with, count_of
from localvolume.dynamic.plan.growing import EVENT_RESIZE_FAILED
from localvolume.dynamic.pools import Pools
from localvolume.dynamic.preconditions import Live, Superseded
from localvolume.dynamic.throttling.act import Throttle
from localvolume.kube.cache import key_of
from localvolume.kube.client import Client
from localvolume.kube.correlate import EventType, ObjectRef
from localvolume.kube.errors import AlreadyThere, NotThere
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import claims, growing, marks
from localvolume.volumes.capacity import quantity
from localvolume.volumes.manifest import PublishingOptions
from localvolume.volumes.objects import is_being_deleted, is_finalized
from localvolume.volumes.patches import bound_to, secured, without_finalizer

log = logging.getLogger(__name__)


@dataclass(eq=False, kw_only=True)
class Acts:
    """One method for each action; `saw_volume` and `saw_claim` are told what the server returns.

    `written_now` gives the time that is written on a volume as that of its release.
    """

    client: Client
    events: EventRecorder
    pools: Pools
    live: Live
    metrics: DynamicMetrics
    node_name: str
    options: Callable[[], PublishingOptions]
    saw_volume: Callable[[PersistentVolume], object]
    saw_claim: Callable[[PersistentVolumeClaim], object]
    calls: Calls
    throttle: Throttle
    origins: Origins
    pods: Pods
    written_now: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._modifying = Modifying(
            pools=self.pools,
            calls=self.calls,
            throttle=self.throttle,
            patch_status=self._patch_status,
            patch_volume=self._patch_volume,
            say=self.say_of_claim,
        )

    def stop(self) -> None:
        """End purges between two files; the next agent begins them again."""
        self.pools.stop_purges()

    async def do(self, action: Action, facts: Facts) -> None:
        """Raises Superseded, BackendFailed, Hung, OSError and the errors of kube.errors."""
        match action:
            case Make():
                await self._make(action, facts)
            case Publish():
                await self._publish(action, facts, time.monotonic())
            case GiveBack():
                await self._give_back(action.claim, action.reason)
            case Reject():
                self.failed(action.claim, action.reason)
            case Ask():
                await self.live.ask(action.record)
            case TakeAway():
                await self._take_away(action)
            case Remember():
                await self._remember(action)
            case TakeOver():
                await self._take_over(action)
            case Secure():
                await self._patch_volume(action.volume, secured(action.volume))
            case MarkReleased():
                since = None if action.again else self.written_now()
                patch = patches.released(action.volume, since, action.period)
                await self._patch_volume(action.volume, patch)
                if not action.again:
                    self.say_of_volume(action.volume, "Normal", "VolumeReleased", action.reason)
                log.info("%s", action.reason, extra=log_fields(action))
            case Unprotect():
                await self._patch_claim(
                    action.claim, without_finalizer(action.claim, claims.CLONING_FINALIZER)
                )
            case Grow():
                await self._grow(action)
            case Modify():
                await self._modifying.modify(action)
            case TellModify():
                await self._modifying.tell(action)
            case TellGrown():
                await self._tell_grown(action.claim, action.volume, action.size_bytes)
            case TellInfeasible():
                await self._tell_infeasible(action)
            case Delete():
                await self._delete(action)
            case Retire():
                await self._retire(action)
            case Purge():
                await self._purge(action)
            case MakeCalled():
                await self._make_called(action)
            case GrowCalled():
                grown = await self.pools.call(
                    action.pool,
                    action.key,
                    lambda store: store.grow(action.record, action.size_bytes),
                )
                log.info("grown to %s", quantity(grown.size_bytes), extra=log_fields(action))
                self.calls.answer(action.key, Volume(record=grown, pool=action.pool.name))
            case ModifyCalled():
                await self._modifying.called(action)
            case RemoveCalled():
                await self._remove_called(action)
            case AskPod():
                await self.pods.ask(action.record)
            case RemoveInline():
                await self.pods.check_over(action.record)
                await self.pools.call(
                    action.pool, action.key, lambda store: store.retire(action.record)
                )
                log.info("removed: %s", action.reason, extra=log_fields(action))
            case CutGroup():
                await groups.cut(self.pools, self.calls, action)
            case RemoveGroup():
                await groups.remove(self.pools, self.calls, action)

    # --- making --------------------------------------------------------------------------------

    async def _make(self, action: Make, facts: Facts) -> None:
        claim, origin, began = action.claim, action.origin, time.monotonic()
        if origin is not None:
            await self._protect(action, origin)
        if action.fresh:
            text = f'provisioning volume for claim "{key_of(claim)}"'
            self.say_of_claim(claim, "Normal", "Provisioning", text)
        try:
            record = await self._content(
                action.pool, action.record, origin, claim.metadata.namespace
            )
        except NoSpace as error:
            await self._take_back(action.pool, action.record)
            if origin is not None:
                raise  # no other node has the content
            text = f"node {self.node_name}: pool {action.pool.name}: {error}"
            await self._give_back(claim, text)
            return
        log.info("made %s", quantity(record.size_bytes), extra=log_fields(action))
        publish = Publish(
            key=action.key,
            reason=action.reason,
            claim=claim,
            pool=action.pool,
            pool_id=self.pools.id_of(action.pool),
            record=record,
        )
        await self._publish(publish, facts, began)

    async def _protect(self, action: Make, origin: Record) -> None:
        """Keep the claim that is cloned until that is done; Superseded if the content that is asked
        for is another by now, or may no longer be had in that volumeMode."""
        told = await self.origins.ask(action.claim)
        if action.fresh and told.handle != origin.name:
            raise Superseded(f"{key_of(action.claim)}: {told.problem or 'it asks for another'}")
        if action.fresh and origin.volume_mode != action.record.volume_mode and not told.other_mode:
            raise Superseded(
                f"{key_of(action.claim)}: the other volumeMode is not allowed any more"
            )
        source = told.claim
        if source is None or is_being_deleted(source):
            return
        if claims.CLONING_FINALIZER not in source.metadata.finalizers:
            await self._patch_claim(source, secured(source, claims.CLONING_FINALIZER))

    async def _publish(self, action: Publish, facts: Facts, began: float) -> None:
        """`began`: when making it, or only publishing it, was begun (time.monotonic)."""
        claim, class_facts = action.claim, facts.classes.get(claims.class_of(action.claim))
        if class_facts is None:
            raise Superseded(f"the class of {key_of(claim)} is gone")
        record = action.record
        body = persistent_volume(
            record,
            claim=claim,
            class_facts=class_facts,
            pool=action.pool,
            pool_id=action.pool_id,
            host_path=self.pools.host_path(action.pool, record),
            source=read_claim(claim, class_facts),
            node=facts.node,
            options=self.options(),
        )
        # Recorded first: from the request on, a tenant may have the volume.
        record = await self._offered(action.pool, record, "")
        try:
            made = await self.client.create(PERSISTENT_VOLUMES, body)
        except AlreadyThere:
            made = await self._same(body)
        self.saw_volume(made)
        self.live.forget(record.name)
        await self._offered(action.pool, record, made.metadata.uid)
        text = f"successfully provisioned volume {record.name}"
        self.say_of_claim(claim, "Normal", "ProvisioningSucceeded", text)
        labels = (record.class_name, SOURCE)
        self.metrics.claims_made.labels(*labels).inc()
        self.metrics.claim_seconds.labels(*labels).observe(time.monotonic() - began)
        log.info("published", extra=log_fields(action))

    async def _same(self, body: dict[str, Any]) -> PersistentVolume:
        """Returns the object that has the name already, if it is the one that was to be created."""
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
        why = reason.removeprefix(f"node {self.node_name}: ")
        patch = patches.given_back(claim, self.node_name, time.time(), why)
        try:
            await self._patch_claim(claim, patch)
        except NotThere:
            raise Superseded(f"{key_of(claim)} is gone") from None
        log.info("given back: %s", reason, extra={"claim": key_of(claim)})

    def failed(self, claim: PersistentVolumeClaim, reason: str) -> None:
        """Count the failure, and tell the claim's owner why it has no volume."""
        self.metrics.claims_failed.labels(claims.class_of(claim), SOURCE).inc()
        log.warning("%s", self.say_failed(claim, reason), extra={"claim": key_of(claim)})

    def count_failure(self, action: Action) -> None:
        """Count a failed attempt to make or remove a volume, as sig-storage's provisioner does, and
        to grow one."""
        match action:
            case Make() | Publish():
                self.metrics.claims_failed.labels(claims.class_of(action.claim), SOURCE).inc()
            case Delete() | Retire():
                class_name = action.volume.spec.storage_class_name
                self.metrics.volumes_not_removed.labels(class_name).inc()
            case Grow():
                self.metrics.volumes_not_grown.labels(claims.class_of(action.claim)).inc()

    def cannot_grow(self, claim: PersistentVolumeClaim, reason: str) -> None:
        """Count the failure, and tell the claim's owner why its volume has not grown."""
        self.metrics.volumes_not_grown.labels(claims.class_of(claim)).inc()
        self.say_of_claim(claim, "Warning", EVENT_RESIZE_FAILED, reason)

    def say_failed(self, claim: PersistentVolumeClaim, reason: str) -> str:
        """Tell the claim's owner why it has no volume; returns what was said."""
        text = f"failed to provision volume: {reason}"
        self.say_of_claim(claim, "Warning", "ProvisioningFailed", text)
        return text

    async def _take_away(self, action: TakeAway) -> None:
        if not action.spare:
            await self.live.ask(action.record)
            names, uids, _ = self.live.unwanted()
            if action.record.name not in names or action.record.claim_uid not in uids:
                raise Superseded(f"{action.record.name} is wanted after all")
        await self._take_back(action.pool, action.record)
        log.info("taken away: %s", action.reason, extra=log_fields(action))

    # --- calls ---------------------------------------------------------------------------------

    async def _make_called(self, action: MakeCalled) -> None:
        record, pool, origin = action.record, action.pool, action.origin

        try:
            made = await self._content(pool, record, origin, action.namespace)
        except NoSpace:
            await self._take_back(pool, record)
            raise
        # From the answer on, a tenant may have the volume.
        if made.state != "offered":
            made = await self._offered(pool, made, "")
        log.info("made %s for a call", quantity(made.size_bytes), extra=log_fields(action))
        fill = Fill() if made.reserve_bytes else None
        self.calls.answer(action.key, Volume(record=made, pool=pool.name, fill=fill))

    async def _remove_called(self, action: RemoveCalled) -> None:
        record, pool = action.record, action.pool
        if not record.snapshot_of and not record.pod_uid:
            for name in sorted({action.key, *action.volumes}):
                await self.live.held_by_nobody(name)
        if record.state == "offered":
            await self.pools.call(pool, action.key, lambda store: store.retire(record))
        else:
            await self._take_back(pool, record)
        log.info("removed for a call", extra=log_fields(action))
        if action.refusal is None:
            self.calls.answer(action.key, None)
        else:
            self.calls.refuse(action.key, action.refusal)

    # --- volumes that are given to others ---------------------------------------------------------

    async def _remember(self, action: Remember) -> None:
        volume, record, count = action.volume, action.record, 0
        if action.given and record.driver == marks.CSI_DRIVER:
            # The object first: one that says less than the record comes from a backup. More than
            # either says: what only the object says may be in a backup, too.
            count = max(record.generation, count_of(volume)) + 1
            notes = {marks.GENERATION_ANNOTATION: str(count)}
            await self._patch_volume(volume, bound_to(volume, annotations=notes))
        await self._offered(action.pool, record, volume.metadata.uid, action.given, count)

    # --- volumes whose object was made anew for our CSI driver -----------------------------------

    async def _take_over(self, action: TakeOver) -> None:
        live = await self.live.volume(action.volume)
        record, pool, uid = action.record, action.pool, live.metadata.uid

        def take(store: Store) -> Record:
            # In one turn: nobody begins to use it in between.
            if users := store.use(record, used_by):
                # A pod that began before the former object went: its mount is not one of ours.
                raise Busy(f"{record.name} is in use: {users[0]}")
            return store.offered(record, uid, driver=marks.CSI_DRIVER)

        if record.volume_uid != uid:
            await self.pools.call(pool, record.name, take)
        done = bound_to(live, annotations={marks.MOVED_ANNOTATION: None})
        await self._patch_volume(live, done)
        text = f"pods use the volume through {marks.CSI_DRIVER} from now on"
        self.say_of_volume(live, "Normal", "VolumeMoved", text)
        log.info("taken over: %s", action.reason, extra=log_fields(action))

    # --- growing -------------------------------------------------------------------------------

    async def _grow(self, action: Grow) -> None:
        claim, size = action.claim, action.size_bytes
        text = f"growing volume {action.key} to {quantity(size)}"
        self.say_of_claim(claim, "Normal", "Resizing", text)
        patch = growing.resizing(claim, size, time.time())
        if patch is not None:
            claim = await self._patch_status(claim, patch)
        grown = await self.pools.call(
            action.pool, action.key, lambda store: store.grow(action.record, action.size_bytes)
        )
        # The size that it has, not the one asked for: logical volumes are rounded up.
        size = grown.size_bytes
        log.info("grown to %s", quantity(size), extra=log_fields(action))
        await self._tell_grown(claim, action.volume, size)

    async def _tell_infeasible(self, action: TellInfeasible) -> None:
        claim, size = action.claim, action.size_bytes
        patch = growing.infeasible(claim, size, action.reason, time.time())
        await self._patch_status(claim, patch)

    async def _tell_grown(
        self, claim: PersistentVolumeClaim, volume: PersistentVolume, size: int
    ) -> None:
        if volume.spec.capacity.get("storage") != quantity(size):
            await self._patch_volume(volume, growing.grown(volume, size))
        await self._patch_status(claim, growing.claim_grown(claim, size))
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

    async def _delete(self, action: Delete) -> None:
        live = await self.live.to_be_deleted(action.volume)
        if not is_finalized(live):
            live = await self._patch_volume(live, secured(live))
        meta = live.metadata
        try:
            await self.client.delete(
                PERSISTENT_VOLUMES, meta.name, uid=meta.uid, resource_version=meta.resource_version
            )
        except NotThere:
            raise Superseded(f"{meta.name} is gone") from None
        log.info("deleting: %s", action.reason, extra=log_fields(action))

    async def _retire(self, action: Retire) -> None:
        began = time.monotonic()
        live = await self.live.to_be_retired(action.volume)
        removed = await self._move_away(action, live)
        try:
            patch = without_finalizer(live)
            self.saw_volume(await self.client.patch(PERSISTENT_VOLUMES, live.metadata.name, patch))
        except NotThere:
            log.debug("%s is gone already", live.metadata.name)
        if removed:
            class_name = live.spec.storage_class_name
            self.metrics.volumes_removed.labels(class_name).inc()
            self.metrics.removal_seconds.labels(class_name).observe(time.monotonic() - began)

    async def _move_away(self, action: Retire, live: PersistentVolume) -> bool:
        """Returns whether it was moved; False if its data was left where it is."""
        record = action.record
        if action.pool is None:
            log.warning("let go: %s", action.reason, extra=log_fields(action))
            return False
        if action.keep:
            if record is not None:
                await self.pools.call(action.pool, record.name, lambda store: store.forget(record))
            log.warning("let go, and its data kept, as its policy says", extra=log_fields(action))
            return False

        def retire(store: Store) -> Record:
            # A volume that another provisioner made may have no record yet.
            meta, class_name = live.metadata, live.spec.storage_class_name
            return store.retire(
                record
                or store.adopt(
                    meta.name, action.directory, volume_uid=meta.uid, class_name=class_name
                )
            )

        await self.pools.call(action.pool, action.key, retire)
        log.info("removed", extra=log_fields(action))
        return True

    async def _purge(self, action: Purge) -> None:
        def report(files: int, size: int) -> None:
            self.metrics.purging(action.key, files, size)

        began = time.monotonic()
        try:
            await self.pools.purge(action.pool, action.record, report)
        finally:
            self.metrics.purge_over(action.key)
        log.info("purged in %.1f s", time.monotonic() - began, extra=log_fields(action))

    # --- common --------------------------------------------------------------------------------

    async def _offered(
        self,
        pool: PoolConfig,
        record: Record,
        volume_uid: str,
        given: str = "",
        generation: int = 0,
    ) -> Record:
        return await self.pools.call(
            pool, record.name, lambda store: store.offered(record, volume_uid, given, generation)
        )

    async def _content(
        self, pool: PoolConfig, record: Record, origin: Record | None, namespace: str
    ) -> Record:
        """Make the volume, empty or with the content of `origin`.

        With a `namespace`, a volume is only copied while a claim of that namespace has it.
        """
        if origin is None:
            return await self.pools.call(pool, record.name, lambda store: store.make(record))
        source = origin

        def copy(store: Store) -> Record:
            # Others' copies may have had their turns first, for hours. A snapshot never changes.
            objects = list(self.calls.volumes.values())
            theirs = (namespace, source.name) in claims_with(objects, source)
            if namespace and not source.snapshot_of and not theirs:
                raise Superseded(f"no claim of namespace {namespace} has volume {source.name}")
            return store.copy(record, source)

        return await self.pools.call(
            pool,
            record.name,
            copy,
            origin=source.name,
            # A directory shares its blocks, and has as many files as its tenant likes.
            in_full=record.full_copies or record.backend == "directory",
        )

    async def _take_back(self, pool: PoolConfig, record: Record) -> None:
        await self.pools.call(pool, record.name, lambda store: store.take_away(record))

    async def _patch_claim(self, claim: PersistentVolumeClaim, patch: Any) -> None:
        meta = claim.metadata
        self.saw_claim(await self.client.patch(CLAIMS, meta.name, patch, meta.namespace))

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


def log_fields(action: Action) -> dict[str, str]:
    """Returns the fields of a log record about an action."""
    about = {"persistentvolume": action.key, "reason": action.reason}
    claim: PersistentVolumeClaim | None = getattr(action, "claim", None)
    record: Record | None = getattr(action, "record", None)
    pool: PoolConfig | None = getattr(action, "pool", None)
    volume: PersistentVolume | None = getattr(action, "volume", None)
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
