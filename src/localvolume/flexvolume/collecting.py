"""Does what `collect.judge` says: asks the API server about each volume, notes, removes.

Removing takes minutes if data is overwritten or a disk hangs, so nothing waits for it.

It never raises for what a volume, its host or the API server does: it keeps that volume, says so,
and looks again at the next sweep.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final

from localvolume.config.syntax.durations import format_duration
from localvolume.flexvolume.absence import is_proven
from localvolume.flexvolume.driver import (
    TAG_CLAIM,
    TAG_GONE_SINCE,
    TAG_PV_UID,
    Driver,
    DriverFailed,
    Owned,
)
from localvolume.flexvolume.plan.collect import (
    Action,
    Answer,
    Facts,
    ForgetGone,
    Gone,
    Keep,
    NoteGone,
    Remove,
    There,
    Unknown,
    judge,
    stale_notes,
)
from localvolume.flexvolume.turns import Turns
from localvolume.host.process.workers import Hung, Workers
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError, NotThere
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume.process.metrics import Metrics, counter, gauge
from localvolume.reconcile.runner import Failing, Runner
from localvolume.volumes.objects import is_being_deleted


class CollectorMetrics(Metrics):
    """What has been removed, and what is waiting for it or will not be."""

    # fmt: off
    removed = counter("localvolume_flexvolume_removed_total",
        "FlexVolume volumes removed after their PersistentVolume was gone")
    failed = counter("localvolume_flexvolume_remove_failed_total",
        "Attempts to remove a FlexVolume volume that failed or were not finished")
    gone = gauge("localvolume_flexvolume_gone_volumes",
        "FlexVolume volumes without a PersistentVolume: due for removal, or kept for good", "fate")
    # fmt: on

    def tell(self, actions: Sequence[Action], gone: Collection[str]) -> None:
        """After a sweep."""
        kept = sum(
            isinstance(one, Keep) and not one.waiting and one.volume.name in gone for one in actions
        )
        self.gone.labels("kept").set(kept)
        self.gone.labels("due").set(len(gone) - kept)


LOOK_SECONDS: Final = 90.0
NOTE_SECONDS: Final = 120.0
REMOVE_SECONDS: Final = 300.0
"""Deadlines. What takes longer (overwriting) is done in pieces, one at each sweep."""

REMOVALS: Final = 4
"""How many volumes are removed at the same time: fewer than there are workers. Removals share the
workers with all other calls, where a call that is left behind blocks its volume."""

MISTAKEN_SECONDS: Final = 30.0
MISTAKEN_LONGEST: Final = 600.0
"""The first and the longest wait after a removal that failed through a mistake of ours."""

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Collector:
    """`now` is the time of day in seconds, `steady` a clock that nobody sets."""

    client: Client
    driver: Driver
    workers: Workers
    turns: Turns
    metrics: CollectorMetrics
    _: KW_ONLY
    grace_seconds: float
    watched_seconds: float
    now: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._gone: dict[str, tuple[str, float]] = {}
        """By name: the volume's id, and since when its PersistentVolume is known to be gone."""
        self._noted: set[tuple[str, str]] = set()
        """Name and id of the volumes for which this process wrote that down."""
        self._said: dict[str, str] = {}
        self.removals = Runner[Remove](
            self._remove,
            failed=self._not_removed,
            ended=lambda *_: None,
            backoff=lambda: Backoff(MISTAKEN_SECONDS, MISTAKEN_LONGEST, spread=0.5),
            at_a_time=REMOVALS,
            queued=True,
        )
        """Those under way, and those that wait for their turn, by the volume's name."""

    async def stop(self) -> None:
        """Begin no more removals, and wait for those that the host is doing: nobody else may work
        on their volumes before."""
        await self.removals.end()

    async def sweep(self, there: Mapping[str, str]) -> list[Action]:
        """Look at every volume of ours once, and do what is due; returns what was decided.

        Removals are only begun. `there` are the UIDs of the PersistentVolumes that the caller has
        seen, by name. Those are believed to be there; others are not believed to be gone.
        """
        # What ends meanwhile may still be listed.
        removing = set(self.removals.busy)
        try:
            volumes = await self.workers.call(
                "flexvolume volumes", LOOK_SECONDS, self.driver.list_volumes
            )
        except (DriverFailed, Hung, OSError) as error:
            self._say("", logging.WARNING, f"the volumes of this node cannot be listed: {error}")
            return []
        self._forget_but(volumes)
        for volume in volumes:
            if volume.problem:
                self._say(volume.name, logging.WARNING, f"left alone: {volume.problem}", volume)
        volumes = [volume for volume in volumes if not volume.problem]
        answers = await self._answers(volumes, there)
        facts = Facts(
            volumes=volumes,
            answers=answers,
            now=self.now(),
            grace_seconds=self.grace_seconds,
            watched_seconds=self.watched_seconds,
        )
        due = [
            one.volume
            for one in judge(facts)
            if isinstance(one, Remove) and one.volume.name not in removing
        ]
        in_use = {volume.name for volume in due if await self._is_in_use(volume)}
        actions = judge(replace(facts, in_use=in_use))
        gone = {name for name, answer in answers.items() if isinstance(answer, Gone)}
        self.metrics.tell(actions, gone)
        for action in actions:
            name = action.volume.name
            if name in removing:
                continue  # its turn is taken
            if isinstance(action, Remove):
                self.removals.offer(name, action)
            else:
                await self._do(action)
        return actions

    # --- asking --------------------------------------------------------------------------------

    async def _answers(
        self, volumes: Sequence[Owned], there: Mapping[str, str]
    ) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}
        asked = []
        for volume in volumes:
            uid = there.get(volume.name, "")
            if uid and uid == volume.tags.get(TAG_PV_UID):
                answers[volume.name] = self._heard(volume, There(uid))
            else:
                asked.append(volume)
        found = await asyncio.gather(*(self._ask(volume) for volume in asked))
        answers.update(zip((volume.name for volume in asked), found, strict=True))
        return answers

    async def _ask(self, volume: Owned) -> Answer:
        """Ask the API server itself whether the volume's PersistentVolume exists now."""
        try:
            live = await self.client.get(PERSISTENT_VOLUMES, volume.name)
        except NotThere as error:
            gone = Gone() if is_proven(error) else Unknown(str(error))
            return self._heard(volume, gone)
        except ApiError as error:
            return self._heard(volume, Unknown(str(error)))
        return self._heard(volume, There(live.metadata.uid, is_being_deleted(live)))

    def _heard(self, volume: Owned, answer: Answer) -> Answer:
        """The answer, with what this process knows from before."""
        match answer:
            case There():
                self._gone.pop(volume.name, None)
                self._noted.discard((volume.name, volume.id))
            case Gone():
                steady = self.steady()
                found = self._gone.get(volume.name)
                if found is None or found[0] != volume.id:
                    found = self._gone[volume.name] = (volume.id, steady)
                return Gone(steady - found[1], (volume.name, volume.id) in self._noted)
        return answer

    async def _is_in_use(self, volume: Owned) -> bool:
        try:
            return await self.turns.call(
                volume.name, NOTE_SECONDS, self.driver.is_in_use, volume.name
            )
        except (DriverFailed, Hung, OSError) as error:
            self._say(volume.name, logging.WARNING, f"whether it is in use is not known: {error}")
            return True

    # --- doing ---------------------------------------------------------------------------------

    async def _do(self, action: Keep | NoteGone | ForgetGone) -> None:
        volume = action.volume
        try:
            match action:
                case Keep(_, reason, waiting):
                    if not waiting:
                        self._say(volume.name, logging.DEBUG, f"kept: {reason}", volume)
                case NoteGone(_, since, reason):
                    note, tags = self.driver.note, {TAG_GONE_SINCE: since}
                    await self.turns.call(volume.name, NOTE_SECONDS, note, volume.name, tags)
                    self._noted.add((volume.name, volume.id))
                    grace = format_duration(round(self.grace_seconds))
                    text = f"{reason}: removed after {grace} unless it comes back"
                    self._say(volume.name, logging.INFO, text, volume)
                case ForgetGone(_, reason):
                    await self._forget_gone(volume)
                    self._say(volume.name, logging.INFO, f"kept: {reason}", volume)
        except (DriverFailed, Hung, OSError) as error:
            self._say(volume.name, logging.WARNING, f"not done: {error}", volume)

    async def _forget_gone(self, volume: Owned) -> None:
        async with self.turns.of(volume.name, NOTE_SECONDS) as turn:
            # Since it was judged, the object's deletion may have begun and been noted.
            notes = stale_notes(volume, await self._ask(volume))
            await turn.call(self.driver.note, volume.name, dict.fromkeys(notes, ""))

    async def _remove(self, action: Remove) -> None:
        volume = action.volume
        async with self.turns.of(volume.name, REMOVE_SECONDS) as turn:
            # Other volumes may have taken minutes each since this one was judged.
            answer = await self._ask(volume)
            if not isinstance(answer, Gone):
                self._say(
                    volume.name, logging.INFO, "kept: it is not certain that it is gone", volume
                )
                return
            await turn.call(self.driver.remove, volume)
        self.metrics.removed.inc()
        self._gone.pop(volume.name, None)
        self._said.pop(volume.name, None)
        log.info("removed: %s", action.reason, extra=_about(volume))

    def _not_removed(self, name: str, action: Remove, error: Exception, failing: Failing) -> float:
        """Say what failed; the next sweep tries it again."""
        self.metrics.failed.inc()
        if not isinstance(error, (DriverFailed, Hung, OSError)):
            log.error("not removed: unexpected", exc_info=error, extra=_about(action.volume))
            return failing.again()
        self._say(name, logging.WARNING, f"not done: {error}", action.volume)
        return 0.0

    def _forget_but(self, volumes: Sequence[Owned]) -> None:
        """Forget the volumes that are not there any more."""
        present = {(volume.name, volume.id) for volume in volumes}
        names = {volume.name for volume in volumes} | {""}
        self._noted &= present
        self._gone = {name: one for name, one in self._gone.items() if name in names}
        self._said = {name: text for name, text in self._said.items() if name in names}
        self.removals.forget_but(names)

    def _say(self, name: str, level: int, text: str, volume: Owned | None = None) -> None:
        """Say it once, until there is something else to say."""
        if self._said.get(name) != text:
            self._said[name] = text
            log.log(
                level, "%s", text, extra=_about(volume) if volume else {"persistentvolume": name}
            )


def _about(volume: Owned) -> dict[str, str]:
    return {"persistentvolume": volume.name, "claim": volume.tags.get(TAG_CLAIM, "")}
