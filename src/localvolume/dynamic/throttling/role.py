"""What wakes the keeping of limits up, and its look: at each volume that has any.

Limits are set before a pod has the volume, and when they change. The look finds what became of them
since: a group that was made anew, or set by somebody else, and what an agent that died left undone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from localvolume.backends.model import BackendFailed
from localvolume.config.model import Configuration
from localvolume.dynamic.calls import Refused, Volumes
from localvolume.dynamic.throttling.act import Throttle
from localvolume.host.process.workers import UNREADABLE, Hung, Workers
from localvolume.kube.correlate import ObjectRef
from localvolume.kube.events import EventRecorder
from localvolume.kube.objects import PersistentVolume
from localvolume.reconcile.loop import CannotLook, Loop
from localvolume.volumes.attributes import Attributes

log = logging.getLogger(__name__)

EVENT_NOT_KEPT: Final = "VolumeLimitsNotKept"
"""A pod reads or writes a volume faster than its attributes allow."""

AGAIN_SECONDS: Final = 60.0
"""Nothing tells of what others write to a control group."""

_SECONDS: Final = 30.0

NEW_GROUP_SECONDS: Final = 5.0
"""The same where each container that starts brings a group which needs limits of its own."""


@dataclass(eq=False, kw_only=True)
class ThrottlingRole:
    """`volumes` are what CSI sees, and `objects` the PersistentVolumes by name."""

    volumes: Volumes
    throttle: Throttle
    events: EventRecorder
    workers: Workers
    objects: Mapping[str, PersistentVolume]

    def __post_init__(self) -> None:
        self.loop = Loop("limits of volumes", self._look, unreadable=UNREADABLE)
        self._said: dict[str, str] = {}

    def changed(self, *_: object) -> None:
        """A mount came or went, or the volumes are known now."""
        self.loop.wake()

    def reconfigure(self, configuration: Configuration) -> None:
        """Nothing of the configuration matters here."""

    async def run(self) -> None:
        """Never returns."""
        await self.loop.run()

    async def _look(self) -> float:
        try:
            self.volumes.node()
        except Refused as error:
            raise CannotLook(str(error)) from error
        known = {one.record.name: one for one in self.volumes.all()}
        limited = {
            name: attributes
            for name, one in known.items()
            if (attributes := one.record.attributes).limits
        }
        wrong = {}
        if why := self.throttle.why_not:
            wrong = {name: why for name, one in limited.items() if one.is_limited}
        elif limited:
            for name in await self._unkept(limited):
                try:
                    await self.volumes.use(known[name], self.throttle.keep)
                except (Refused, BackendFailed, Hung, OSError) as error:
                    wrong[name] = str(error)
        for name, why in wrong.items():
            if self._said.get(name) != why:
                self._say(name, f"its limits of reading and writing are not kept: {why}")
        self._said = wrong
        return NEW_GROUP_SECONDS if limited and self.throttle.by_container else AGAIN_SECONDS

    async def _unkept(self, limited: Mapping[str, Attributes]) -> Sequence[str]:
        """Looked at without asking pools, of which some run a command each time."""
        try:
            return sorted(
                await self.workers.call("limits", _SECONDS, self.throttle.unkept, limited)
            )
        except BackendFailed as error:
            # Which it is of is told by those that cannot be set.
            log.debug("%s", error)
            return sorted(limited)

    def _say(self, name: str, text: str) -> None:
        log.warning("%s: %s", name, text)
        if (volume := self.objects.get(name)) is not None:
            self.events.event(ObjectRef.of_volume(volume.metadata), "Warning", EVENT_NOT_KEPT, text)
