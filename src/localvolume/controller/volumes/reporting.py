"""What the controller tells people: Events on the volume and on the claim that holds it."""

from __future__ import annotations

from localvolume.controller.model import (
    DeleteVolume,
    LetGo,
    MarkLost,
    MarkReturned,
    Report,
    Step,
    Wait,
)
from localvolume.controller.plan.volumes import follows, named
from localvolume.kube.correlate import EventType
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.volumes.objects import is_held_by_claim

EVENT_LOST = "ReferencedNodeDeleted"
"""Upstream's reason."""
EVENT_RETURNED = "ReferencedNodeReturned"
EVENT_ABANDONED = "VolumeAbandoned"

_ROOM_SECONDS = 10.0


class Reporter:
    """Says each thing once, and again only after `forget`."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._said: dict[str, str] = {}
        self._abandoned: set[str] = set()
        self._unwritten = 0

    async def room(self) -> None:
        """Wait while very much was said lately: a queue that overflows loses what is in it.

        Not for ever: nothing depends on an Event. Half of it is for those who are acting by then.
        """
        if self._unwritten >= self._events.room // 2:
            await self._events.flush(_ROOM_SECONDS)
            self._unwritten = 0

    def lost(self, step: MarkLost) -> None:
        """Its node was just missed; what follows needs no second Event."""
        self._said[step.volume.metadata.name] = step.then
        self._tell(step, EVENT_LOST, f"{step.reason}: {step.then}")

    def held(self, step: Report | Wait) -> None:
        """What is not done, or not yet, and why."""
        name, then = step.volume.metadata.name, follows(step)
        if self._said.get(name) == then:
            return
        self._said[name] = then
        names = named(step.volume)
        self._tell(step, EVENT_LOST, f"no node is there that can serve it ({names}): {then}")

    def returned(self, step: MarkReturned) -> None:
        self.quiet(step.volume.metadata.name)
        self._tell(step, EVENT_RETURNED, step.reason, "Normal")

    def abandoned(self, step: DeleteVolume | LetGo) -> None:
        text = "its node is lost: removed without being cleaned; a tenant's data may be on the disk"
        uid = step.volume.metadata.uid
        if uid not in self._abandoned:  # said when it was deleted; letting it go may be tried twice
            self._abandoned.add(uid)
            self._event(ObjectRef.of_volume(step.volume.metadata), "Warning", EVENT_ABANDONED, text)

    def quiet(self, name: str) -> None:
        """There is nothing to be said of this volume any more."""
        self._said.pop(name, None)

    def forget(self) -> None:
        """Events expire after an hour: what is still so is said anew."""
        self._said.clear()
        self._abandoned.clear()

    def _tell(self, step: Step, reason: str, text: str, type_: EventType = "Warning") -> None:
        claim = step.volume.spec.claim_ref
        if claim is not None and claim.uid and is_held_by_claim(step.volume):
            self._event(ObjectRef.of_claim(claim), type_, reason, text)
        self._event(ObjectRef.of_volume(step.volume.metadata), type_, reason, text)

    def _event(self, about: ObjectRef, type_: EventType, reason: str, text: str) -> None:
        self._unwritten += 1
        self._events.event(about, type_, reason, text)
