"""Does one step of a plan: writes to the API server and to disks, and decides nothing.

Whatever a step relies on is asked again at the moment of acting: of the API server by
preconditions (UID and resourceVersion), of the disk by reading it anew. Where the answer differs,
nothing is done and the whole is planned again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from localvolume.cleaning.limits import DeviceLimits
from localvolume.cleaning.method import Method, choose_method
from localvolume.cleaning.receipt import CleaningFailed, CleaningRefused, Progress, Receipt
from localvolume.cleaning.run import clean
from localvolume.cleaning.target import Target
from localvolume.host.sysfs import base_of, disk_of
from localvolume.host.workers import Workers
from localvolume.kube.client import Client
from localvolume.kube.errors import AlreadyThere, ApiError, NotThere, TryAgainLater
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume
from localvolume.static import patches
from localvolume.static.asked import Asked
from localvolume.static.facts import Survey
from localvolume.static.model import (
    Adopt,
    Ask,
    Clean,
    CleanFirst,
    Content,
    Entry,
    LetGo,
    MarkClaimed,
    Publish,
    Reclaim,
    Step,
    Withdraw,
)
from localvolume.static.offer import offer
from localvolume.static.surroundings import Surroundings
from localvolume.static.telemetry import Telemetry, capacity_label
from localvolume.volumes.capacity import bytes_of
from localvolume.volumes.identity import unchanged
from localvolume.volumes.objects import is_being_deleted, is_finalized, is_held_by_claim

log = logging.getLogger(__name__)

CLEANERS = 16
"""How many volumes, on as many disks, may be cleaned at the same moment."""

PROGRESS_SECONDS = 30.0
"""How often a long cleaning says in the log how far it is."""


class Superseded(Exception):
    """What the step was planned for is no longer so: plan again."""


class Acts:
    """The steps, one method each; `saw(volume)` is told what the API server returned."""

    def __init__(
        self,
        *,
        client: Client,
        events: EventRecorder,
        survey: Survey,
        workers: Workers,
        telemetry: Telemetry,
        saw: Callable[[PersistentVolume], object],
        asked: Asked,
    ) -> None:
        self._client = client
        self._events = events
        self._survey = survey
        self._workers = workers
        self.cleaners = Workers(limit=CLEANERS)
        """Deleting takes a thread for minutes: discovery must not wait for one."""
        self._telemetry = telemetry
        self._saw = saw
        self._asked = asked
        self._limits = DeviceLimits()
        self.stop = asyncio.Event()
        """Set when the process ends: cleaning stops between two steps and is begun anew later."""

    async def do(self, step: Step, around: Surroundings) -> None:
        """Raises Superseded, CleaningFailed, CleaningStopped, and the errors of kube.errors."""
        match step:
            case Publish():
                await self._publish(step, around)
            case Ask():
                await self._ask(step.name)
            case Adopt():
                # Forgotten first: where the patch is refused, the object is looked at anew.
                self._asked.forget(step.volume.metadata.name)
                patch = patches.adoption(step.volume, around.node.name, step.identity)
                await self._patch(step.volume, patch)
                log.info("adopted", extra=_about(step))
            case MarkClaimed():
                await self._patch(step.volume, patches.claimed(step.volume))
            case Withdraw() | Reclaim():
                await self._delete(step.volume)
                log.info("deleting", extra=_about(step))
            case LetGo():
                await self._let_go(step.volume)
                log.info("let go", extra=_about(step))
            case Clean():
                await self._clean_released(step, around)
            case CleanFirst():
                await self._clean_first(step, around)

    # --- the API server ------------------------------------------------------------------------

    async def _publish(self, step: Publish, around: Surroundings) -> None:
        began = time.monotonic()
        entry = await self._still(step.entry)
        class_facts = around.classes[entry.class_name]
        trusted = class_facts.config.first_use == "trust"
        if entry.content != Content("empty") and not (
            trusted and entry.content and entry.content.state == "holds"
        ):
            raise Superseded(f"{entry.path} is not empty any more")
        mode = class_facts.config.volume_mode
        body = offer(step.name, entry, class_facts, around.node, around.options)
        try:
            created = await self._client.create(PERSISTENT_VOLUMES, body)
        except AlreadyThere:
            await self._ask(step.name)
            raise Superseded(f"{step.name} exists already") from None
        self._asked.forget(step.name)
        self._saw(created)
        self._telemetry.discovered.labels(mode).inc()
        self._telemetry.discovery_seconds.labels(mode).observe(time.monotonic() - began)
        log.info("published", extra=_about(step) | {"persistentvolume": step.name})

    async def _ask(self, name: str) -> PersistentVolume | None:
        try:
            found = await self._client.get(PERSISTENT_VOLUMES, name)
        except NotThere:
            found = None
        self._asked.answer(name, found)
        return found

    async def _patch(self, volume: PersistentVolume, patch: Any) -> None:
        name = volume.metadata.name
        self._saw(await self._client.patch(PERSISTENT_VOLUMES, name, patch))

    async def _delete(self, volume: PersistentVolume) -> None:
        meta = volume.metadata
        await self._client.delete(
            PERSISTENT_VOLUMES, meta.name, uid=meta.uid, resource_version=meta.resource_version
        )

    async def _let_go(self, volume: PersistentVolume) -> None:
        try:
            await self._patch(volume, patches.without_finalizer(volume))
        except NotThere:
            log.debug("%s is gone already", volume.metadata.name)

    async def _let_go_once_clean(self, volume: PersistentVolume) -> None:
        """Remove the finalizer after a cleaning, for as long as that takes.

        The cleaning is done and the object cannot be bound any more: only this last write is
        repeated, never the cleaning, also where an administrator must first allow the write.
        """
        name, attempt = volume.metadata.name, 0
        while True:
            try:
                # Cleaning took its time: others may have changed the object since.
                volume = await self._live(volume)
                if is_finalized(volume):
                    await self._let_go(volume)
                return
            except ApiError as error:
                attempt += 1
                wait = min(30.0, 0.25 * 2 ** min(attempt, 7))
                if isinstance(error, TryAgainLater) and error.after:
                    wait = error.after
                log.warning("%s is clean; its finalizer stays for now: %s", name, error)
            await asyncio.sleep(wait)

    async def _live(self, volume: PersistentVolume) -> PersistentVolume:
        """The object as it is now; Superseded where another has its name or it is gone."""
        try:
            live = await self._client.get(PERSISTENT_VOLUMES, volume.metadata.name)
        except NotThere:
            raise Superseded(f"{volume.metadata.name} is gone") from None
        if live.metadata.uid != volume.metadata.uid:
            raise Superseded(f"{volume.metadata.name} is another object now")
        return live

    # --- the disk ------------------------------------------------------------------------------

    async def _still(self, entry: Entry, *, offered: bool = False) -> Entry:
        """The entry read anew; Superseded where it is not what the plan was made for."""
        fresh = await self._survey.read_now(entry, offered=offered)
        if fresh.problem is not None:
            raise Superseded(f"{entry.path}: {fresh.problem.text}")
        comparison = unchanged(entry.identity, fresh.identity)
        if comparison.verdict != "same" or fresh.size_bytes != entry.size_bytes:
            raise Superseded(f"{entry.path} has changed: {comparison.reason or 'its size'}")
        return fresh

    async def _clean_released(self, step: Clean, around: Surroundings) -> None:
        volume = await self._still_to_be_cleaned(step.volume)
        name, mode = volume.metadata.name, volume.spec.volume_mode or "Filesystem"
        method = self._method(step.entry, mode, around)
        about = reference(volume)
        began = time.monotonic()
        text = f"cleaning {step.entry.path} with {method}"
        self._events.event(about, "Normal", "VolumeDelete", text)
        try:
            receipt = await self._clean(
                name, step.entry, method, around, lambda: self._still_to_be_cleaned(volume)
            )
        except CleaningFailed:
            self._telemetry.delete_failed.labels(mode, "process").inc()
            raise
        self._events.event(about, "Normal", "VolumeCleaned", receipt.summary())
        await self._let_go_once_clean(volume)
        size = bytes_of(volume.spec.capacity.get("storage", "")) or 0
        self._telemetry.deleted.labels(mode, "process").inc()
        self._telemetry.delete_seconds.labels(
            mode, "process", capacity_label(size), str(method)
        ).observe(time.monotonic() - began)

    async def _still_to_be_cleaned(self, volume: PersistentVolume) -> PersistentVolume:
        live = await self._live(volume)
        held = is_held_by_claim(live)
        if held or not is_being_deleted(live) or not is_finalized(live):
            raise Superseded(f"{live.metadata.name} is not to be cleaned any more")
        return live

    async def _clean_first(self, step: CleanFirst, around: Surroundings) -> None:
        async def still_unknown() -> None:
            if await self._ask(step.name) is not None:
                raise Superseded(f"{step.name} exists")

        await still_unknown()
        mode = around.classes[step.entry.class_name].config.volume_mode
        method = self._method(step.entry, mode, around)
        log.warning("cleaning before first use", extra=_about(step))
        await self._clean(step.name, step.entry, method, around, still_unknown)

    @staticmethod
    def _method(entry: Entry, mode: str, around: Surroundings) -> Method:
        config = around.classes[entry.class_name].config
        return choose_method(
            config.block_cleaner_command,
            volume_kind="block" if entry.kind == "block" else "filesystem",
            volume_mode="Block" if mode == "Block" else "Filesystem",
        )

    async def _clean(
        self,
        name: str,
        planned: Entry,
        method: Method,
        around: Surroundings,
        confirm: Callable[[], Awaitable[object]],
    ) -> Receipt:
        """Clean the entry's volume, one after the other on each disk; the receipt is logged.

        `confirm` asks the API server once more, with the volume locked against other agents.
        """
        config = around.classes[planned.class_name].config
        log_about = {"persistentvolume": name, "class": planned.class_name, "path": planned.path}
        disk = await self._workers.call(planned.device, 5.0, _disk_of, planned.device)
        self._telemetry.running.inc()
        try:
            async with self._limits.hold(disk, config.cleaning_concurrency):
                # Waiting for the disk may have taken hours: what is there now?
                entry = await self._still(planned, offered=True)
                if pods := await self._survey.mounted_by_pods(entry):
                    raise CleaningRefused(f"a pod still has it mounted: {', '.join(pods)}")
                target = Target(
                    "block" if entry.kind == "block" else "filesystem",
                    entry.path,
                    entry.device,
                    entry.mount_id,
                    identity=entry.identity,
                )
                log.info("cleaning with %s", method, extra=log_about)
                receipt = await clean(
                    target,
                    method,
                    workers=self.cleaners,
                    progress=self._reporter(name, log_about),
                    stop=self.stop,
                    timeout=config.cleaning_timeout_seconds,
                    confirm=confirm,
                )
        except CleaningFailed:
            self._telemetry.failed.inc()
            raise
        finally:
            self._telemetry.running.dec()
            self._telemetry.cleaning_over(name)
            self._survey.forget(planned.path)
        self._telemetry.succeeded.inc()
        log.info("cleaned: %s", receipt.summary(), extra=log_about | {"receipt": receipt.as_dict()})
        return receipt

    def _reporter(self, name: str, log_about: dict[str, str]) -> Callable[[Progress], None]:
        said = time.monotonic()

        def report(progress: Progress) -> None:
            nonlocal said
            self._telemetry.progress(name, progress)
            if time.monotonic() - said >= PROGRESS_SECONDS:
                said = time.monotonic()
                log.info("still cleaning: %s", progress, extra=log_about)

        return report


def _disk_of(device: str) -> str:
    """The disk under a device or partition: what two cleanings at once would slow down."""
    return disk_of(base_of(device))


def reference(volume: PersistentVolume) -> ObjectRef:
    """The volume as Events name it."""
    meta = volume.metadata
    return ObjectRef("PersistentVolume", meta.name, meta.uid)


def _about(step: Step) -> dict[str, str]:
    about = {"path": step.key, "reason": step.reason}
    volume = getattr(step, "volume", None)
    if volume is not None:
        about |= {"persistentvolume": volume.metadata.name, "class": volume.spec.storage_class_name}
    return about
