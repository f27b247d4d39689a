"""Does one action on one PersistentVolume: writes to the API server, and decides nothing.

Every write names the exact object it is meant for, and the state in which that was seen. Before
anything is deleted or let go, all that this rests on is read once more (``preconditions``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from localvolume.controller.caches.trimmed import VOLUMES, KnownVolume
from localvolume.controller.metrics import ControllerMetrics
from localvolume.controller.model import (
    Action,
    Adopt,
    DeleteClaim,
    DeleteVolume,
    LetGo,
    MarkLost,
    MarkReturned,
)
from localvolume.controller.volumes.counting import Counting
from localvolume.controller.volumes.preconditions import look, still
from localvolume.controller.volumes.reporting import Reporter
from localvolume.kube.client import Client, JsonPatch, MergePatch
from localvolume.kube.errors import ApiError, LookAgain, NotThere
from localvolume.kube.kinds import CLAIMS
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.moments import written
from localvolume.volumes.objects import is_being_deleted, is_finalized, phase_of
from localvolume.volumes.patches import bound_to, without_finalizer

log = logging.getLogger(__name__)

_ATTEMPTS = 3
"""How often in a row, if somebody else changes the same object at the same time."""


class Refrained(Exception):
    """The action is due, but the object it would delete is not the one it is meant for."""


@dataclass(eq=False, kw_only=True)
class Acts:
    """The actions, one method each; `saw(volume)` is called with what the API server returned."""

    client: Client
    reporter: Reporter
    metrics: ControllerMetrics
    counting: Counting
    saw: Callable[[KnownVolume], object]

    async def do(self, action: Action) -> None:
        """Raises Superseded, Refrained, NotLeading, and the errors of kube.errors."""
        volume = action.volume
        await self.reporter.until_queue_has_space()
        match action:
            case Adopt():
                # The node's agent finds it by this label.
                label = {marks.NODE_LABEL: marks.node_key(action.node_name)}
                await self._patch(volume, bound_to(volume, labels=label))
                self.metrics.adopted.inc()
                log.info("adopted for %s", action.node_name, extra=_about(action))
            case MarkLost():
                await self._mark_lost(action)
            case MarkReturned():
                await self._patch(volume, _marked_lost(volume, None))
                self.reporter.returned(action)
                log.info("%s", action.reason, extra=_about(action))
            case DeleteClaim():
                await self._delete_claim(action)
            case DeleteVolume():
                await self._delete_volume(action)
            case LetGo():
                await self._let_go(action)

    async def _mark_lost(self, action: MarkLost) -> None:
        # Asks the API server, as before a deletion: a node that a stale cache misses is not lost.
        found = await look(self.client, action)
        if found is None:
            return
        action = still(found, action, self.counting)
        since = written(self.counting.latest())
        await self._patch(action.volume, _marked_lost(action.volume, since))
        self.reporter.lost(action)
        log.warning("%s: %s", action.reason, action.then, extra=_about(action))

    async def _patch(self, volume: PersistentVolume, patch: MergePatch | JsonPatch) -> None:
        self.saw(await self.client.patch(VOLUMES, volume.metadata.name, patch))

    # --- claims --------------------------------------------------------------------------------

    async def _delete_claim(self, action: DeleteClaim) -> None:
        found = await look(self.client, action)
        if found is None:
            return
        action = still(found, action, self.counting)
        name, ref = action.volume.metadata.name, action.volume.spec.claim_ref
        if ref is None:
            raise Refrained(f"{name}: it is bound, and does not say to which claim")
        try:
            claim = await self.client.get(CLAIMS, ref.name, ref.namespace)
        except NotThere:
            return
        if claim.metadata.uid != ref.uid or claim.spec.volume_name != name:
            raise Refrained(f"{name}: the claim {ref.namespace}/{ref.name} is not on this volume")
        if claim.metadata.deletion_timestamp is not None:
            raise Refrained(f"{name}: its claim is being deleted already")
        try:
            await self.client.delete(
                CLAIMS,
                ref.name,
                ref.namespace,
                uid=ref.uid,
                resource_version=claim.metadata.resource_version,
            )
        except NotThere:
            return
        except LookAgain:
            raise
        except ApiError:
            self.metrics.claims_failed.inc()
            raise
        self.metrics.claims_deleted.inc()
        log.warning("deleted the claim %s/%s", ref.namespace, ref.name, extra=_about(action))

    # --- volumes -------------------------------------------------------------------------------

    async def _delete_volume(self, action: DeleteVolume) -> None:
        found = await look(self.client, action)
        if found is None:
            return
        action = still(found, action, self.counting)
        meta, phase = action.volume.metadata, phase_of(action.volume)
        try:
            await self.client.delete(
                VOLUMES, meta.name, uid=meta.uid, resource_version=meta.resource_version
            )
        except NotThere:
            return
        except LookAgain:
            raise
        except ApiError:
            self.metrics.volumes_failed.labels(phase).inc()
            raise
        self.metrics.volumes_deleted.labels(phase).inc()
        log.warning("deleted: %s", action.reason, extra=_about(action))
        if action.abandons:
            self.reporter.abandoned(action)
        # Others write to it too when it is deleted, to remove their own finalizers.
        left = _ATTEMPTS
        while True:
            try:
                await self._let_go(LetGo(action.volume, action.reason, action.abandons))
            except LookAgain:
                left -= 1
                if not left:
                    raise
            else:
                return

    async def _let_go(self, action: LetGo) -> None:
        found = await look(self.client, action)
        if found is None or not (is_being_deleted(found.volume) and is_finalized(found.volume)):
            return
        action = still(found, action, self.counting)
        try:
            await self._patch(found.volume, without_finalizer(found.volume))
        except NotThere:
            return
        log.warning("let go: %s", action.reason, extra=_about(action))
        if action.abandons:
            self.reporter.abandoned(action)


def _marked_lost(volume: PersistentVolume, since: str | None) -> MergePatch:
    """Mark since when no node is there that can serve it; None removes the mark."""
    return bound_to(volume, annotations={marks.LOST_ANNOTATION: since})


def _about(action: Action) -> dict[str, str]:
    return {
        "persistentvolume": action.volume.metadata.name,
        "storageclass": action.volume.spec.storage_class_name,
    }
