"""What the demo claims to have seen, it has seen: the objects as the API server tells of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from localvolume.kube.client import Client
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import CLAIMS, EVENTS, PERSISTENT_VOLUMES
from localvolume.kube.objects import EventObject, PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import marks
from localvolume.volumes.objects import path_of, phase_of
from localvolume_lab.demo.cluster import Names

T = TypeVar("T")

PATIENCE_SECONDS = 120.0
"""For what takes seconds at most: also on a machine that has hardly any time for it."""


class NotSeen(Exception):
    """What should have happened did not, in time or at all."""


class Witness:
    """Watches the demo's volumes and claims, and the Events about volumes, with their times.

    `alive` says whether there is still something to wait for; `on_change` is called after every
    change of a volume or claim.
    """

    def __init__(
        self,
        client: Client,
        names: Names,
        *,
        alive: Callable[[], bool],
        on_change: Callable[[], None],
    ) -> None:
        self._alive = alive
        self._on_change = on_change
        self._changed = asyncio.Event()
        self._times: dict[tuple[str, str], float] = {}
        self._volumes = Informer(
            client,
            PERSISTENT_VOLUMES,
            label_selector=f"{marks.NODE_LABEL}={marks.node_key(names.node)}",
            on_change=self._volume_changed,
        )
        self._claims = Informer(
            client, CLAIMS, namespace=names.namespace, on_change=self._something_changed
        )
        self._events = Informer(
            client,
            EVENTS,
            namespace="default",
            field_selector="involvedObject.kind=PersistentVolume",
            on_change=self._something_changed,
        )

    async def run(self) -> None:
        """Never returns."""
        async with asyncio.TaskGroup() as tasks:
            for informer in (self._volumes, self._claims, self._events):
                tasks.create_task(informer.run())

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        seen = new or old
        if seen is not None:
            phase = phase_of(new) if new else "gone"
            self._times.setdefault((seen.metadata.uid, phase), time.monotonic())
            self._times.setdefault((seen.metadata.uid, "there"), time.monotonic())
        self._something_changed()

    def _something_changed(self, *_: object) -> None:
        self._changed.set()
        self._on_change()

    # --- what there is -------------------------------------------------------------------------

    def volumes(self) -> list[PersistentVolume]:
        """All of the demo's, in the order of their paths."""
        return sorted(self._volumes.items.values(), key=path_of)

    def volume_at(self, path: str, *, phase: str = "") -> PersistentVolume | None:
        """The one of this path, where it is in that phase."""
        for volume in self._volumes.items.values():
            if path_of(volume) == path and phase in ("", phase_of(volume)):
                return volume
        return None

    def successor(self, old: PersistentVolume) -> PersistentVolume | None:
        """The object that took the old one's place and is there for anybody."""
        new = self.volume_at(path_of(old), phase="Available")
        return new if new and new.metadata.uid != old.metadata.uid else None

    def bound_to(self, claim: str) -> PersistentVolume | None:
        """The volume of this claim, once both say so."""
        for key, found in self._claims.items.items():
            if key.endswith(f"/{claim}") and found.status.phase == "Bound":
                volume = self._volumes.items.get(found.spec.volume_name)
                ref = volume.spec.claim_ref if volume else None
                same = ref is not None and ref.uid == found.metadata.uid
                return volume if volume and same and phase_of(volume) == "Bound" else None
        return None

    def claim(self, name: str) -> PersistentVolumeClaim | None:
        return next(
            (claim for claim in self._claims.items.values() if claim.metadata.name == name), None
        )

    def gone(self, volume: PersistentVolume) -> bool:
        """Whether the object was there and is not any more."""
        return (volume.metadata.uid, "gone") in self._times

    def event(self, volume: PersistentVolume, reason: str) -> EventObject | None:
        """An Event with that reason about this very object."""
        for event in self._events.items.values():
            if event.involved_object.uid == volume.metadata.uid and event.reason == reason:
                return event
        return None

    def news(self, volume: PersistentVolume) -> str:
        """The last reason of an Event about it."""
        newest, reason = "", ""
        for event in self._events.items.values():
            at = event.last_timestamp or ""
            # Times are whole seconds: of two alike the one that came later.
            if event.involved_object.uid == volume.metadata.uid and at >= newest:
                newest, reason = at, event.reason
        return reason

    def when(self, volume: PersistentVolume, what: str = "there") -> float:
        """When the object was first seen "there", in a phase, or "gone" (time.monotonic).

        Raises NotSeen where it never was.
        """
        if (volume.metadata.uid, what) not in self._times:
            raise NotSeen(f"{volume.metadata.name} was never seen {what}")
        return self._times[volume.metadata.uid, what]

    # --- waiting -------------------------------------------------------------------------------

    async def until(self, look: Callable[[], T | None], what: str) -> T:
        """The first answer of `look` that is not None. Raises NotSeen."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := look()) is None:
            self._check(deadline, what)
            self._changed.clear()
            try:
                async with asyncio.timeout(0.5):
                    await self._changed.wait()
            except TimeoutError:
                continue
        return found

    async def until_found(self, look: Callable[[], Awaitable[T | None]], what: str) -> T:
        """The first answer that is not None to what is asked again and again. Raises NotSeen."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := await look()) is None:
            self._check(deadline, what)
            await asyncio.sleep(0.02)
        return found

    def _check(self, deadline: float, what: str) -> None:
        if not self._alive():
            raise NotSeen(f"the agent or the controller ended before {what}")
        if time.monotonic() > deadline:
            raise NotSeen(f"waited {PATIENCE_SECONDS:.0f} s in vain for {what}")
