"""The leader's role for FlexVolume: makes PersistentVolumes for claims, and deletes them after use.

Level-triggered like volumes/role.py, with a queue of its own. Claims are queued as
`namespace/name`, PersistentVolumes by their names, which have no slash.

The caches keep little of a claim, and a watch may be late: right before an action, the objects it
rests on are read whole from the API server, and the same rules must still call for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from localvolume.controller.caches.trimmed import VOLUMES, KnownVolume
from localvolume.controller.executor import Executor
from localvolume.controller.leading import Leading, Means
from localvolume.controller.metrics import ControllerMetrics
from localvolume.controller.plan.capacity import allows
from localvolume.controller.volumes.preconditions import Superseded
from localvolume.flexvolume.absence import claim_of
from localvolume.flexvolume.plan.provision import (
    EVENT_FAILED,
    Action,
    Claim,
    ClaimFacts,
    Keep,
    Provision,
    Refuse,
    is_made_for,
    judge_claim,
)
from localvolume.flexvolume.plan.release import (
    EVENT_FAILED_DELETE,
    EVENT_PUT_RIGHT,
    Delete,
    Hold,
    VolumeFacts,
    judge_volume,
)
from localvolume.kube.cache import key_of
from localvolume.kube.client import Client
from localvolume.kube.correlate import EventType
from localvolume.kube.errors import AlreadyThere, ApiError, LookAgain, NotThere, TryAgainLater
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.kinds import CLAIMS
from localvolume.volumes import affinity, claims, marks
from localvolume.volumes.patches import secured

log = logging.getLogger(__name__)

AT_A_TIME: Final = 16
"""How many actions on claims and volumes run at the same time."""


Due = Provision | Delete
"""The decisions that call for an act; all others are at most reported."""

_SOURCE = ""
"""The library's label `source` says what a claim is filled from; ours never are."""


@dataclass(eq=False, kw_only=True)
class FlexActs:
    """`claim_again` and `volume_again` decide again, from what was just read. `saw` is called with
    what the API server returned, `cannot` with what turned out to be refused or held."""

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
        match again := self.volume_again(volume, await claim_of(self.client, volume)):
            case Hold():
                self.cannot(again)
            case Delete():
                await self._remove(volume, again)
            case _:
                raise Superseded(f"{seen.name}: {again.reason}")

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


class FlexVolumes(Leading[Due]):
    """The claims of FlexVolume's classes, and the PersistentVolumes made for them."""

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self._served = means.policy.flex_drivers
        acts = FlexActs(
            client=means.client,
            events=means.events,
            metrics=means.metrics,
            claim_again=self._judge_claim,
            volume_again=self._judge_volume,
            saw=means.cluster.volumes.apply_own_write,
            cannot=self._cannot,
        )
        self._executor = Executor[Due](
            acts.do, self._queue, at_a_time=AT_A_TIME, state_of=_state_of
        )
        self._open: dict[str, str] = {}
        self._namesakes: dict[str, str] = {}
        self._said: dict[str, str] = {}
        self._held: set[str] = set()
        """The PersistentVolumes that were said to be held."""

    async def _start(self) -> None:
        await self._demand.wait_synced()
        self._demand.flex_listener = self
        self._add_all()

    def _hear_nothing(self) -> None:
        self._demand.flex_listener = None

    # --- what calls for judging ----------------------------------------------------------------

    def claims_changed(self, names: Iterable[str]) -> None:
        self._queue.add(names)

    def volume_changed(self, name: str) -> None:
        waiting = self._namesakes.get(name)
        self._queue.add([name] if waiting is None else [name, waiting])

    def node_changed(self, _name: str) -> None:
        self._queue.add(self._open)

    def _add_all(self) -> None:
        claims_ = self._demand.claims.items.items()
        self._queue.add([key for key, claim in claims_ if not claim.spec.volume_name])
        volumes = self._cluster.volumes.items.items()
        self._queue.add([name for name, one in volumes if one.spec.flex_volume is not None])

    def _resync(self) -> None:
        self._said.clear()
        self._add_all()

    # --- judging -------------------------------------------------------------------------------

    def _judging(self) -> Callable[[str], None]:
        return self._judge

    def _judge(self, name: str) -> None:
        try:
            action = self._decide(name)
        except Exception:  # a bug that shows with one object must not stop the others
            log.exception("%s cannot be judged", name)
            return
        match action:
            case None:
                self._take_back(name)
                self._close(name)
                self._executor.forget(name)
            case Provision() | Delete():
                self._executor.begin(name, action)
            case Refuse() | Hold():
                self._executor.forget(name)
                self._cannot(action)
            case _:
                self._take_back(name)
                self._executor.forget(name)

    def _decide(self, name: str) -> Action | None:
        """What is due; None if that changes only with the object itself."""
        if "/" in name:
            claim = self._demand.claims.items.get(name)
            if claim is None or claims.provisioner_of(claim) not in self._served:
                return None
            self._keep_open(name, claims.volume_name(claim.metadata.uid))
            return self._judge_claim(claim)
        volume = self._cluster.volumes.items.get(name)
        if volume is None or volume.spec.flex_volume is None:
            return None
        action = self._judge_volume(volume, None)
        if isinstance(action, Keep) and volume.status.phase != "Released":
            return None
        self._keep_open(name, "")
        return action

    def _keep_open(self, name: str, volume: str) -> None:
        """Judge it again when a Node changes, or the PersistentVolume that is named `volume`."""
        if (before := self._open.get(name)) and before != volume:
            self._namesakes.pop(before, None)
        self._open[name] = volume
        if volume:
            self._namesakes[volume] = name

    def _close(self, name: str) -> None:
        self._namesakes.pop(self._open.pop(name, ""), None)
        self._said.pop(name, None)

    def _judge_claim(self, claim: Claim) -> Action:
        storage_class = self._demand.classes.items.get(claims.class_of(claim))
        node = self._cluster.nodes_now().by_name(claims.selected_node(claim))
        if node is not None and storage_class is not None and not allows(storage_class, node):
            node = None  # claims.py has the scheduler choose another
        name = claims.volume_name(claim.metadata.uid)
        facts = ClaimFacts(
            served=self._served,
            storage_class=storage_class,
            there=self._cluster.volumes.items.get(name),
            node=node,
        )
        return judge_claim(facts, claim)

    def _judge_volume(self, volume: KnownVolume, claim: Claim | None) -> Action:
        nodes, why_not = self._cluster.nodes_now(), ""
        if affinity.required_terms(volume) and marks.NODE_LABEL not in volume.metadata.labels:
            maker = nodes.maker(volume)
            why_not = maker if isinstance(maker, str) else ""
        facts = VolumeFacts(
            served=self._served,
            node=nodes.serving_dynamic(volume),
            why_not=why_not,
            claim=claim,
        )
        return judge_volume(facts, volume)

    # --- telling -------------------------------------------------------------------------------

    def _cannot(self, action: Refuse | Hold) -> None:
        """Report this once, and again after a while: Events expire."""
        if isinstance(action, Refuse):
            about, reason = ObjectRef.of_claim(action.claim.metadata), EVENT_FAILED
            name, class_name = key_of(action.claim), claims.class_of(action.claim)
        else:
            about, reason = ObjectRef.of_volume(action.volume.metadata), EVENT_FAILED_DELETE
            name, class_name = about.name, action.volume.spec.storage_class_name
        if self._said.get(name) == action.reason:
            return
        self._said[name] = action.reason
        if isinstance(action, Refuse):
            self._metrics.not_provisioned.labels(class_name, "").inc()
        else:
            self._metrics.flex_not_deleted.labels(class_name).inc()
        if isinstance(action, Hold):
            self._held.add(name)
        self._events.event(about, "Warning", reason, action.reason)

    def _take_back(self, name: str) -> None:
        """Say that a volume is held no longer, if it was said to be held and is still there."""
        if name not in self._held:
            return
        self._held.remove(name)
        self._said.pop(name, None)
        if (volume := self._cluster.volumes.items.get(name)) is not None:
            about, text = ObjectRef.of_volume(volume.metadata), "what was said of it is over"
            self._events.event(about, "Normal", EVENT_PUT_RIGHT, text)


def _state_of(action: Due) -> str:
    """The resourceVersion from which an action was decided."""
    about = action.claim if isinstance(action, Provision) else action.volume
    return about.metadata.resource_version
