"""What wakes the health role up, and its look: from facts to a plan, from the plan to acts.

Most failures raise no event: a filesystem counts an error and goes on. So the role looks at all
volumes once a minute, and shortly after anything on the node has changed. An act is one patch of a
PersistentVolume, then the Events: volumes are never touched.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from localvolume.config.model import Configuration
from localvolume.health.facts import Survey
from localvolume.health.metrics import HealthMetrics
from localvolume.health.model import Facts, Memory, Over, Patience, Plan, Say, Seen, Wait
from localvolume.health.onclaim import health_status
from localvolume.health.plan.paths import Pools, location_of, thin_of, well_placed
from localvolume.health.plan.plan import plan
from localvolume.host.process.workers import UNREADABLE, Workers
from localvolume.kube.client import Client
from localvolume.kube.correlate import EventType
from localvolume.kube.errors import ApiError, TryAgainLater
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.ownpod import OwnPod
from localvolume.reconcile.loop import Loop, Rest
from localvolume.volumes import marks
from localvolume.volumes.objects import is_csi, is_static, phase_of
from localvolume.volumes.patches import bound_to

log = logging.getLogger(__name__)

EVENT_UNHEALTHY: Final = "VolumeUnhealthy"
EVENT_HEALTHY: Final = "VolumeHealthy"

_REST_FACTOR = 20.0
"""Looking takes less than a twentieth of a core, even on a restless node. But there is a limit:
a look held up by a dying disk or a sleeping machine must not blind us for twenty times as long."""


@dataclass(eq=False, kw_only=True)
class HealthRole:
    """The health of all volumes of one node, whichever role they belong to."""

    client: Client
    events: EventRecorder
    workers: Workers
    metrics: HealthMetrics
    volumes: Informer[PersistentVolume]
    pools: Callable[[], Pools]
    own_pod: OwnPod
    configuration: Configuration
    patience: Patience

    def __post_init__(self) -> None:
        self._survey = Survey(self.workers)
        self._memory: dict[str, Memory] = {}
        self._unknown: dict[str, str] = {}
        rest = Rest(factor=_REST_FACTOR, shortest=self.patience.rest, longest=self.patience.look)
        self.loop = Loop("health", self._look, rest=rest, unreadable=UNREADABLE)

    def changed(self, *_: object) -> None:
        """A PersistentVolume, a device or the mount table changed."""
        self.loop.wake()

    def reconfigure(self, configuration: Configuration) -> None:
        """Uses another configuration from the next look on."""
        self.configuration = configuration
        self.changed()

    async def run(self) -> None:
        """Never returns."""
        await self.volumes.synced.wait()
        await self.own_pod.answered.wait()
        await self.loop.run()

    async def _look(self) -> float:
        """Looks, and reports what is due. Returns the seconds until the next look by itself."""
        began = time.monotonic()
        volumes = {one.metadata.uid: one for one in self.volumes.items.values()}
        configuration, pools = well_placed(self.configuration, self.pools(), self.own_pod.pod)
        locations = {}
        for uid, volume in volumes.items():
            location = location_of(volume, configuration, pools)
            if location is not None:
                locations[uid] = location
        seen = await self._survey.look(locations)
        for uid, location in locations.items():
            if (thin := thin_of(location, pools)) is not None:
                seen[uid] = replace(seen[uid], thin=thin)
        made = plan(
            Facts(
                volumes=volumes,
                locations=locations,
                seen=seen,
                memory=self._memory,
                now=time.monotonic(),
                patience=self.patience,
            )
        )
        self._tell(made, volumes, seen, time.monotonic() - began)
        again = self.patience.look * (0.75 + random.random() / 2)  # noqa: S311 - jitter
        waits = [action.seconds for action in made.actions if isinstance(action, Wait)]
        if not await self._write(made):
            waits.append(self.patience.retry)
        self._memory = made.memory
        return min([again, *waits])

    async def _write(self, made: Plan) -> bool:
        """Writes one by one, even if a thousand volumes fail. Returns whether all is done."""
        away, complete = False, True
        for action in made.actions:
            if not isinstance(action, Say | Over):
                continue
            try:
                if not away:
                    await self._do(action)
                    continue
            except ApiError as error:
                # Mostly because another role has written to the object meanwhile.
                log.info(
                    "%s: its health is not reported yet: %s", action.volume.metadata.name, error
                )
                away = isinstance(error, TryAgainLater)
            complete = False
            uid = action.volume.metadata.uid
            before = self._memory.get(uid, Memory())
            made.memory[uid] = replace(made.memory[uid], written=before.written)
        return complete

    async def _do(self, action: Say | Over) -> None:
        """Writes the object before the Events: an agent that dies in between repeats none. And the
        claim's status before the object, which has nothing left to be said then.

        Raises the errors of kube.errors; the object may have changed since it was looked at.
        """
        volume = action.volume
        if isinstance(action, Over) or action.aloud:
            await self._tell_claim(action)
        text = str(action.trouble) if isinstance(action, Say) else None
        patch = bound_to(volume, annotations={marks.HEALTH_ANNOTATION: text})
        self.volumes.apply_own_write(
            await self.client.patch(PERSISTENT_VOLUMES, volume.metadata.name, patch)
        )
        if isinstance(action, Over):
            self._say(action, "Normal", EVENT_HEALTHY, action.reason)
            log.info("%s: %s", volume.metadata.name, action.reason)
        elif action.aloud:
            self._say(action, "Warning", EVENT_UNHEALTHY, str(action.trouble))
            log.warning("%s: %s", volume.metadata.name, action.trouble)

    async def _tell_claim(self, action: Say | Over) -> None:
        """Says it in the status of the claim that has the CSI volume. Raises TryAgainLater."""
        claim = action.volume.spec.claim_ref
        if claim is None or not is_csi(action.volume) or phase_of(action.volume) != "Bound":
            return
        trouble = action.trouble if isinstance(action, Say) else None
        patch = health_status(claim, trouble, time.time())
        try:
            await self.client.patch(
                CLAIMS, claim.name, patch, claim.namespace, subresource="status"
            )
        except TryAgainLater:
            raise
        except ApiError as error:
            # Another claim of that name, or one that is not ours to write to: Events tell of it.
            log.info(
                "%s: its health is not reported on its claim: %s",
                action.volume.metadata.name,
                error,
            )

    def _say(self, action: Say | Over, type_: EventType, reason: str, text: str) -> None:
        meta, claim = action.volume.metadata, action.volume.spec.claim_ref
        if not (isinstance(action, Say) and action.to_claim_only):
            self.events.event(ObjectRef.of_volume(meta), type_, reason, text)
        if claim is not None and claim.uid and phase_of(action.volume) == "Bound":
            said = f"{meta.name}: {text}"
            self.events.event(ObjectRef.of_claim(claim), type_, reason, said)

    def _tell(
        self,
        made: Plan,
        volumes: dict[str, PersistentVolume],
        seen: Mapping[str, Seen],
        seconds: float,
    ) -> None:
        for uid, text in made.unknown.items():
            if self._unknown.get(uid) != text:
                log.info("%s: its health is not known: %s", volumes[uid].metadata.name, text)
        self._unknown = made.unknown
        unhealthy = ((volumes[uid], reason) for uid, reason in made.unhealthy.items())
        filled = (
            (volumes[uid], one.filled)
            for uid, one in seen.items()
            if one.filled is not None and uid not in made.unknown and _counts(volumes[uid])
        )
        self.metrics.tell(unhealthy, filled, len(made.unknown), seconds)


def _counts(volume: PersistentVolume) -> bool:
    """Whether somebody must know how full it is: a claim has it, and Kubernetes its filesystem."""
    is_filesystem = volume.spec.volume_mode != "Block"
    return is_static(volume) and is_filesystem and phase_of(volume) == "Bound"
