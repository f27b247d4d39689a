"""What wakes the keeping of limits up, and its look: at each volume that has any.

Limits are set before a pod has the volume, and when they change. The look finds what became of them
since: a group that was made anew, or set by somebody else, and what an agent that died left undone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from localvolume.backends.model import BackendFailed
from localvolume.config.model import Configuration
from localvolume.dynamic.calls import Refused, Volumes
from localvolume.dynamic.throttling.act import Throttle
from localvolume.host.process.workers import UNREADABLE, Hung
from localvolume.kube.correlate import ObjectRef
from localvolume.kube.events import EventRecorder
from localvolume.kube.objects import PersistentVolume
from localvolume.reconcile.loop import CannotLook, Loop

log = logging.getLogger(__name__)

EVENT_NOT_KEPT: Final = "VolumeLimitsNotKept"
"""A pod reads or writes a volume faster than its attributes allow."""

AGAIN_SECONDS: Final = 60.0
"""Nothing tells of what others write to a control group."""

NEW_GROUP_SECONDS: Final = 5.0
"""The same where each container that starts brings a group which needs limits of its own."""


@dataclass(eq=False, kw_only=True)
class ThrottlingRole:
    """`volumes` are what CSI sees, and `objects` the PersistentVolumes by name."""

    volumes: Volumes
    throttle: Throttle
    events: EventRecorder
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
        found = [one for one in self.volumes.all() if one.record.attributes.limits]
        wrong = {}
        for volume in found:
            try:
                await self.volumes.use(volume, self.throttle.keep)
            except (Refused, BackendFailed, Hung, OSError) as error:
                wrong[volume.record.name] = str(error)
        for name, why in wrong.items():
            if self._said.get(name) != why:
                self._say(name, f"its limits of reading and writing are not kept: {why}")
        self._said = wrong
        return NEW_GROUP_SECONDS if found and self.throttle.by_container else AGAIN_SECONDS

    def _say(self, name: str, text: str) -> None:
        log.warning("%s: %s", name, text)
        if (volume := self.objects.get(name)) is not None:
            self.events.event(ObjectRef.of_volume(volume.metadata), "Warning", EVENT_NOT_KEPT, text)
