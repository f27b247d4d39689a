"""What the controller tells people: Events on the volume and on the claim that holds it."""

from __future__ import annotations

from localvolume.controller.model import (
    Action,
    DeleteVolume,
    LetGo,
    MarkLost,
    MarkReturned,
    Report,
    Wait,
)
from localvolume.controller.plan.volumes import follows, named
from localvolume.kube.correlate import EventType
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.volumes.objects import is_held_by_claim

EVENT_LOST = "ReferencedNodeDeleted"
"""The reason that upstream gives."""
EVENT_RETURNED = "ReferencedNodeReturned"
EVENT_ABANDONED = "VolumeAbandoned"

_SPACE_SECONDS = 10.0


class Reporter:
    """Reports each thing once, and again only after `forget`."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._said: dict[str, str] = {}
        self._abandoned: set[str] = set()
        self._unwritten = 0

    async def until_queue_has_space(self) -> None:
        """Wait if very many Events were recorded lately: a queue that overflows loses some.

        Not for ever: nothing depends on an Event. Half the queue is left for acts under way.
        """
        if self._unwritten >= self._events.queue_size // 2:
            await self._events.flush(_SPACE_SECONDS)
            self._unwritten = 0

    def lost(self, action: MarkLost) -> None:
        """Report a node that was just found missing; what follows needs no second Event."""
        self._said[action.volume.metadata.name] = action.then
        self._tell(action, EVENT_LOST, f"{action.reason}: {action.then}")

    def held(self, action: Report | Wait) -> None:
        """Report what is not done, or not yet, and why."""
        name, then = action.volume.metadata.name, follows(action)
        if self._said.get(name) == then:
            return
        self._said[name] = then
        names = named(action.volume)
        self._tell(action, EVENT_LOST, f"no node is there that can serve it ({names}): {then}")

    def returned(self, action: MarkReturned) -> None:
        self.quiet(action.volume.metadata.name)
        self._tell(action, EVENT_RETURNED, action.reason, "Normal")

    def abandoned(self, action: DeleteVolume | LetGo) -> None:
        text = "its node is lost: removed without being cleaned; a tenant's data may be on the disk"
        uid = action.volume.metadata.uid
        if uid not in self._abandoned:  # reported once: letting it go may be tried twice
            self._abandoned.add(uid)
            self._event(
                ObjectRef.of_volume(action.volume.metadata), "Warning", EVENT_ABANDONED, text
            )

    def quiet(self, name: str) -> None:
        """Forget what was said: there is nothing to report about this volume any more."""
        self._said.pop(name, None)

    def forget(self) -> None:
        """Report again what is still so: Events expire after an hour."""
        self._said.clear()
        self._abandoned.clear()

    def _tell(self, action: Action, reason: str, text: str, type_: EventType = "Warning") -> None:
        claim = action.volume.spec.claim_ref
        if claim is not None and claim.uid and is_held_by_claim(action.volume):
            self._event(ObjectRef.of_claim(claim), type_, reason, text)
        self._event(ObjectRef.of_volume(action.volume.metadata), type_, reason, text)

    def _event(self, about: ObjectRef, type_: EventType, reason: str, text: str) -> None:
        self._unwritten += 1
        self._events.event(about, type_, reason, text)
