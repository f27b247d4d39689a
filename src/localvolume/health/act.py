"""Does one action of a plan: one patch of the PersistentVolume, then the Events. Decides nothing.

The object first: an agent that dies in between says nothing twice. Volumes are never touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from localvolume.health.model import EVENT_HEALTHY, EVENT_UNHEALTHY, Over, Say
from localvolume.kube.client import Client
from localvolume.kube.correlate import EventType
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.objects import phase_of
from localvolume.volumes.patches import bound_to

log = logging.getLogger(__name__)


class Acts:
    """`saw(volume)` is told what the API server returned."""

    def __init__(
        self, client: Client, events: EventRecorder, saw: Callable[[PersistentVolume], object]
    ) -> None:
        self._client = client
        self._events = events
        self._saw = saw

    async def do(self, action: Say | Over) -> None:
        """Raises the errors of kube.errors; the object may have changed since it was looked at."""
        volume = action.volume
        text = str(action.trouble) if isinstance(action, Say) else None
        patch = bound_to(volume, annotations={marks.HEALTH_ANNOTATION: text})
        self._saw(await self._client.patch(PERSISTENT_VOLUMES, volume.metadata.name, patch))
        if isinstance(action, Over):
            self._tell(volume, "Normal", EVENT_HEALTHY, action.reason)
            log.info("%s: %s", volume.metadata.name, action.reason)
        elif action.aloud:
            self._tell(
                volume,
                "Warning",
                EVENT_UNHEALTHY,
                str(action.trouble),
                to_claim_only=action.to_claim_only,
            )
            log.warning("%s: %s", volume.metadata.name, action.trouble)

    def _tell(
        self,
        volume: PersistentVolume,
        type_: EventType,
        reason: str,
        text: str,
        *,
        to_claim_only: bool = False,
    ) -> None:
        meta, claim = volume.metadata, volume.spec.claim_ref
        if not to_claim_only:
            self._events.event(ObjectRef.of_volume(meta), type_, reason, text)
        if claim is not None and claim.uid and phase_of(volume) == "Bound":
            said = f"{meta.name}: {text}"
            self._events.event(ObjectRef.of_claim(claim), type_, reason, said)
