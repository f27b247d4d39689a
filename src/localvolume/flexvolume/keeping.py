"""Keeps PersistentVolumes and what is on disk together: policies, deletions, growth, adoption.

Level-triggered: each look goes over all of this node's FlexVolume PersistentVolumes. What fails is
said once and tried again at the next look.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.config.syntax.names import fault_of_label_value
from localvolume.flexvolume.binding import Binding
from localvolume.flexvolume.driver import (
    MADE,
    TAG_CLAIM,
    TAG_CLAIM_UID,
    TAG_ENDED,
    TAG_POLICY,
    TAG_PV_UID,
    TAG_STATE,
    Driver,
    DriverFailed,
    Owned,
)
from localvolume.flexvolume.plan.absence import is_proven
from localvolume.flexvolume.plan.binding import is_elastics, is_served, other_node, tags_of
from localvolume.flexvolume.telemetry import FlexTelemetry
from localvolume.flexvolume.turns import Turns
from localvolume.host.process.workers import Hung, Workers
from localvolume.kube.cache import key_of
from localvolume.kube.client import Client
from localvolume.kube.correlate import EventType
from localvolume.kube.errors import ApiError, LookAgain, NotThere
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.informer import PAGE
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import growing, marks
from localvolume.volumes.capacity import bytes_of, quantity
from localvolume.volumes.claims import requested_bytes
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.objects import is_being_deleted, is_finalized, phase_of
from localvolume.volumes.patches import without_finalizer

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 90.0
ACT_SECONDS: Final = 120.0
"""Deadlines of listing the volumes and of one act about one of them."""


class Keeping:
    """`saw_volume` and `saw_claim` are told what the API server returns; lists are read in pages of
    so many objects."""

    def __init__(
        self,
        *,
        client: Client,
        events: EventRecorder,
        workers: Workers,
        config: FlexVolumeConfig,
        driver: Driver,
        turns: Turns,
        binding: Binding,
        telemetry: FlexTelemetry,
        node_name: str,
        saw_volume: Callable[[PersistentVolume], object],
        saw_claim: Callable[[PersistentVolumeClaim], object],
        page: int = PAGE,
    ) -> None:
        self._client = client
        self._events = events
        self._workers = workers
        self._config = config
        self._driver = driver
        self._turns = turns
        self._binding = binding
        self._telemetry = telemetry
        self._node_name = node_name
        self._saw_volume = saw_volume
        self._saw_claim = saw_claim
        self._page = page
        self._said: dict[str, str] = {}

    # --- looking -------------------------------------------------------------------------------

    async def look(
        self,
        node: NodeFacts,
        volumes: Mapping[str, PersistentVolume],
        claims: Mapping[str, PersistentVolumeClaim],
    ) -> None:
        """See to every PersistentVolume of ours. Raises DriverFailed, Hung where the volumes of
        this node cannot be listed."""
        listed = await self._workers.call(
            "flexvolume volumes", LOOK_SECONDS, self._driver.list_volumes
        )
        owned = {one.name: one for one in listed}
        self._telemetry.there(len(listed), sum(one.size_bytes for one in listed))
        for name, volume in volumes.items():
            if not is_served(volume, self._config.names):
                continue
            if other := other_node(volume, node):
                self._say(name, f"nothing is done about it: it {other}")
                continue
            try:
                await self._see_to(volume, owned.get(name), claims)
            except LookAgain:
                continue  # the informer brings what it is now
            except (ApiError, DriverFailed, Hung, OSError) as error:
                self._say(name, f"nothing is done about it now: {error}")
            else:
                self._said.pop(name, None)
        self._said = {name: text for name, text in self._said.items() if name in volumes}

    async def _see_to(
        self,
        volume: PersistentVolume,
        owned: Owned | None,
        claims: Mapping[str, PersistentVolumeClaim],
    ) -> None:
        if is_being_deleted(volume) and is_finalized(volume):
            if phase_of(volume) != "Bound":
                await self._let_go(volume)
            return
        _check_readable(owned)
        if owned is None or owned.tags.get(TAG_PV_UID) != volume.metadata.uid:
            return  # never mounted yet, or an earlier object's: the mount decides
        wanted = tags_of(volume)
        if is_being_deleted(volume):
            # Somebody else holds it, and its policy may still be set to Retain.
            if owned.tags.get(TAG_POLICY, "") != wanted[TAG_POLICY]:
                await self._note(volume.metadata.name, {TAG_POLICY: wanted[TAG_POLICY]})
            return
        keys = [TAG_POLICY] + ([TAG_CLAIM, TAG_CLAIM_UID] if wanted[TAG_CLAIM_UID] else [])
        if any(owned.tags.get(key, "") != wanted[key] for key in keys):
            await self._note(volume.metadata.name, {key: wanted[key] for key in keys})
        if owned.tags.get(TAG_STATE) == MADE and phase_of(volume) == "Bound":
            # Adopted, or mounted by a call that ended before it could say so.
            volume = await self._binding.told(volume)
        await self._grow(volume, owned, claims)

    async def _note(self, name: str, tags: Mapping[str, str]) -> None:
        async with self._turns.of(name, ACT_SECONDS) as turn:
            await turn.call(self._driver.note, name, tags)

    # --- the end of a PersistentVolume ---------------------------------------------------------

    async def _let_go(self, seen: PersistentVolume) -> None:
        """Note what is to become of the volume, then let the object go: in this order, so that
        nothing is removed by a policy that was set before the last."""
        name = seen.metadata.name
        live = await self._client.get(PERSISTENT_VOLUMES, name)
        self._saw_volume(live)
        if (
            live.metadata.uid != seen.metadata.uid
            or not is_being_deleted(live)
            or not is_finalized(live)
            or phase_of(live) == "Bound"
            or await self._has_claim(live)
        ):
            return
        tags = {key: value for key, value in tags_of(live).items() if value}
        tags[TAG_ENDED] = live.metadata.uid
        async with self._turns.of(name, ACT_SECONDS) as turn:
            listed = await turn.call(self._driver.list_volumes)
            owned = next((one for one in listed if one.name == name), None)
            _check_readable(owned)
            if owned is None and is_elastics(live):
                await turn.call(self._driver.adopt, {name: tags})
            elif owned is not None and owned.tags.get(TAG_PV_UID) == live.metadata.uid:
                await turn.call(self._driver.note, name, tags)
        # Bound to the very state that was noted.
        patch = without_finalizer(live)
        self._saw_volume(await self._client.patch(PERSISTENT_VOLUMES, name, patch))
        policy = tags[TAG_POLICY]
        log.info("let go, with reclaim policy %s", policy, extra={"persistentvolume": name})

    async def _has_claim(self, live: PersistentVolume) -> bool:
        ref = live.spec.claim_ref
        if ref is None or not ref.uid:
            return False
        try:
            claim = await self._client.get(CLAIMS, ref.name, ref.namespace)
        except NotThere as error:
            if not is_proven(error):
                raise
            return False
        return claim.metadata.uid == ref.uid

    # --- growing -------------------------------------------------------------------------------

    async def _grow(
        self,
        volume: PersistentVolume,
        owned: Owned,
        claims: Mapping[str, PersistentVolumeClaim],
    ) -> None:
        """What the claim asks for beyond what it has; sizes mean something to lvm alone.

        The object's capacity says nothing of that: for FlexVolumes kube-controller-manager raises
        it as soon as the claim asks, and leaves the rest to the node.
        """
        ref = volume.spec.claim_ref
        if self._config.driver != "lvm" or ref is None or phase_of(volume) != "Bound":
            return
        claim = claims.get(f"{ref.namespace}/{ref.name}")
        if claim is None or claim.metadata.uid != ref.uid or is_being_deleted(claim):
            return
        wanted = requested_bytes(claim)
        told = bytes_of(claim.status.capacity.get("storage", ""))
        if wanted is None or told is None or wanted <= min(owned.size_bytes, told):
            return
        # Also where it is large enough: its filesystem may not be yet, after a crash.
        await self._tell_grown(volume, claim, await self._make_grow(volume, claim, owned, wanted))

    async def _make_grow(
        self, volume: PersistentVolume, claim: PersistentVolumeClaim, owned: Owned, wanted: int
    ) -> int:
        name, text = volume.metadata.name, quantity(wanted)
        self._say_of(claim, "Normal", "Resizing", f"growing volume {name} to {text}")
        patch = growing.resizing(claim, wanted, time.time())
        if patch is not None:
            await self._patch_status(claim, patch)
        try:
            async with self._turns.of(name, ACT_SECONDS) as turn:
                size: int = await turn.call(self._driver.grow, name, wanted)
        except (DriverFailed, Hung) as error:
            why = f"volume {name} cannot grow to {text}: {error}"
            self._say_of(claim, "Warning", "VolumeResizeFailed", why)
            raise
        log.info(
            "grown from %s to %s",
            quantity(owned.size_bytes),
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
            self._saw_volume(await self._client.patch(PERSISTENT_VOLUMES, name, patch))
        live = await self._client.get(CLAIMS, meta.name, meta.namespace)
        if live.metadata.uid == meta.uid:
            await self._patch_status(live, growing.told(live, size))
            text = f"volume {name} has {quantity(size)} now"
            self._say_of(claim, "Normal", "VolumeResizeSuccessful", text)

    async def _patch_status(self, claim: PersistentVolumeClaim, patch: Any) -> None:
        meta = claim.metadata
        self._saw_claim(
            await self._client.patch(CLAIMS, meta.name, patch, meta.namespace, subresource="status")
        )

    # --- elastic's -----------------------------------------------------------------------------

    async def mark_elastics(self, node: NodeFacts) -> None:
        """Our marks on the PersistentVolumes that elastic's driver bound to this node, so that we
        hear of their ends. Raises ApiError, Refused."""
        if marks.ELASTIC_FLEX_DRIVER not in self._config.names:
            return
        for name, volume in (await self._labelled()).items():
            if is_elastics(volume) and not other_node(volume, node):
                await self._binding.adopt(volume)
                log.debug("marked as this node's", extra={"persistentvolume": name})

    async def _labelled(self) -> dict[str, PersistentVolume]:
        if fault_of_label_value(self._node_name) is not None:
            return {}  # elastic's driver could bind none
        found: dict[str, PersistentVolume] = {}
        cont = ""
        while True:
            page = await self._client.list_page(
                PERSISTENT_VOLUMES,
                label_selector=f"{marks.ELASTIC_NODE_LABEL}={self._node_name}",
                limit=self._page,
                cont=cont,
            )
            found.update({one.metadata.name: one for one in page.items})
            cont = page.cont
            if not cont:
                return found

    # --- telling -------------------------------------------------------------------------------

    def _say(self, name: str, text: str) -> None:
        """Once, until there is something else to say."""
        if self._said.get(name) != text:
            self._said[name] = text
            log.warning("%s", text, extra={"persistentvolume": name})

    def _say_of(
        self, claim: PersistentVolumeClaim, type_: EventType, reason: str, text: str
    ) -> None:
        self._events.event(ObjectRef.of_claim(claim.metadata), type_, reason, text)


def _check_readable(owned: Owned | None) -> None:
    """Raises DriverFailed where nobody can tell whose the volume is."""
    if owned is not None and owned.problem:
        raise DriverFailed(owned.problem)
