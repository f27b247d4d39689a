"""Does one action of a plan: writes to the API server and to disks, and decides nothing.

Whatever an action relies on is checked again at the moment of acting: at the API server by
preconditions (UID and resourceVersion), on the disk by reading it again. If the answer differs,
nothing is done and everything is planned again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from localvolume.cleaning.limits import DeviceLimits
from localvolume.cleaning.method import Method, MethodInvalid
from localvolume.cleaning.receipt import CleaningFailed, Progress, Receipt
from localvolume.cleaning.run import Cleaning
from localvolume.config.model import ClassConfig
from localvolume.host.process.workers import Workers
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.errors import AlreadyThere, LookAgain, NotThere
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume
from localvolume.static.asked import Asked
from localvolume.static.facts.survey import Survey
from localvolume.static.jobs.watch import JobWatch
from localvolume.static.metrics import StaticMetrics, capacity_label
from localvolume.static.model import (
    Action,
    Adopt,
    Ask,
    Clean,
    CleanFirst,
    Entry,
    KeepRecord,
    LetGo,
    MarkClaimed,
    Publish,
    Reclaim,
    StopJob,
    Withdraw,
)
from localvolume.static.paces import StaticPaces
from localvolume.static.plan.content import is_offerable, method_for
from localvolume.static.plan.offer import offer
from localvolume.static.plan.plan import EVENT_NAMES_TAKEN, EVENT_WAITS, held_by_another
from localvolume.static.plan.surroundings import Surroundings
from localvolume.static.plan.world import names_of
from localvolume.static.preconditions import Confirm, Superseded, target_of
from localvolume.static.recording import Records
from localvolume.static.stops import Stops
from localvolume.static.strangers import BURST_SECONDS
from localvolume.static.writing import RecordWriter
from localvolume.volumes import marks
from localvolume.volumes.capacity import bytes_of
from localvolume.volumes.identity import Identity, to_annotation
from localvolume.volumes.objects import claim_of, is_being_deleted, is_finalized, is_held_by_claim
from localvolume.volumes.patches import bound_to
from localvolume.volumes.record import Record

if TYPE_CHECKING:
    from localvolume.static.jobs.cleaning import JobCleaner

log = logging.getLogger(__name__)

CLEANERS = 16
"""How many volumes, on as many disks, may be cleaned at the same moment."""

PROGRESS_SECONDS = 30.0
"""How often a long cleaning logs its progress."""


@dataclass(eq=False, kw_only=True)
class Acts:
    """The actions, one method each; `saw(volume)` is told what the API server returned.

    `class_now` returns a class as the configuration in force now has it, or None.
    """

    client: Client
    events: EventRecorder
    survey: Survey
    workers: Workers
    records: Records
    metrics: StaticMetrics
    saw: Callable[[PersistentVolume], object]
    asked: Asked
    jobs: JobWatch
    class_now: Callable[[str], ClassConfig | None]
    paces: StaticPaces
    clean: Cleaning

    def __post_init__(self) -> None:
        self._confirm = Confirm(self.client, self.survey, self.workers, self.saw)
        self._record = RecordWriter(self.records, self.survey, self.workers, self.paces)
        self.cleaners = Workers(limit=CLEANERS)
        """Deleting occupies a thread for minutes: discovery must not wait for one."""
        self._limits = DeviceLimits()
        self.stops = Stops()
        """Stops cleanings, each between two of its steps; one that is still wanted begins again
        later."""
        self._clean_target = self.clean

    @cached_property
    def _by_job(self) -> JobCleaner:
        # Imported when something is cleaned: an idle agent need not load it.
        from localvolume.static.jobs.cleaning import JobCleaner

        return JobCleaner(
            self.client,
            self.jobs,
            self._confirm,
            self._record,
            self.cleaners,
            self.paces,
        )

    async def do(self, action: Action, around: Surroundings) -> None:
        """Raises Superseded, CleaningFailed, CleaningStopped, and the errors of kube.errors."""
        match action:
            case Publish():
                await self._publish(action, around)
            case Ask():
                await self._ask(action.name)
            case Adopt():
                # Forget it first: if the patch is refused, the object is looked up again.
                self.asked.forget(action.volume.metadata.name)
                patch = adoption(action.volume, around.node.name, action.identity)
                await self._patch(action.volume, patch)
                log.info("adopted", extra=log_fields(action))
            case KeepRecord():
                if generation := await self._record.complete(action.volume, action.entry):
                    await self._patch(action.volume, recorded(action.volume, generation))
            case MarkClaimed():
                if action.entry is not None:
                    await self._record.take(action.volume, action.entry)
                await self._patch(action.volume, claimed(action.volume))
            case Withdraw() | Reclaim():
                await self._delete(action.volume)
                log.info("deleting", extra=log_fields(action))
            case StopJob():
                await self._by_job.remove(action.job)
            case LetGo():
                await self._confirm.let_go(action.volume)
                log.info("let go", extra=log_fields(action))
            case Clean():
                await self._clean_released(action, around)
            case CleanFirst():
                await self._clean_first(action, around)

    # --- the API server ------------------------------------------------------------------------

    async def _publish(self, action: Publish, around: Surroundings) -> None:
        began = time.monotonic()
        entry = await self._confirm.still(action.entry)
        class_facts = around.classes[entry.class_name]
        if entry.unwell:
            raise Superseded(f"{entry.path}: {entry.unwell}")
        if not is_offerable(entry.content, class_facts.config):
            raise Superseded(f"{entry.path} is not empty any more")
        if why := held_by_another(entry):
            raise Superseded(f"{entry.path}: {why}")
        own = names_of(entry, around.node.name)
        why = await self._confirm.offered_by_another(entry, around.node, own)
        if class_facts.config.selector and not why:
            why = await self._confirm.on_a_disk_of_others(entry, around.node, BURST_SECONDS)
        if why:
            self.asked.named(entry.host_path, why)
            raise Superseded(f"{entry.path}: {why}")
        mode = class_facts.config.volume_mode
        if isinstance(entry.recorded, Record) and entry.recorded.claim:
            await self._confirm.mounted_by_none(entry)
        record = await self._record.offer(entry)
        body = offer(action.name, entry, class_facts, around.node, around.options, record)
        try:
            created = await self.client.create(PERSISTENT_VOLUMES, body)
        except AlreadyThere:
            await self._ask(action.name)
            raise Superseded(f"{action.name} exists already") from None
        self.asked.forget(action.name)
        if class_facts.config.selector:
            await self._only_one_offers(created, entry, around)
        self.saw(created)
        self.metrics.discovered.labels(mode).inc()
        self.metrics.discovery_seconds.labels(mode).observe(time.monotonic() - began)
        log.info("published", extra=log_fields(action) | {"persistentvolume": action.name})
        if action.spare:
            text = f"other volumes have its names {own[0]} and {own[1]}: it got one of its own"
            log.warning("%s", text, extra={"persistentvolume": action.name})
            about = ObjectRef.of_volume(created.metadata)
            self.events.event(about, "Warning", EVENT_NAMES_TAKEN, text)

    async def _only_one_offers(
        self, created: PersistentVolume, entry: Entry, around: Surroundings
    ) -> None:
        """Take our offer back if another node has offered the same disk at the same moment.

        Both look after they have written, so at least one sees the other. If both do, both try
        again, each at its own time. An object that a claim has got meanwhile stays: its volume is
        not cleaned while the other object is there. Raises Superseded if there is another offer,
        and the errors of kube.errors.
        """
        why = await self._confirm.on_a_disk_of_others(entry, around.node)
        if why is None:
            return
        log.warning("%s is withdrawn: %s", created.metadata.name, why)
        while not is_held_by_claim(created):
            try:
                await self._delete(created)
                break
            except LookAgain:  # its phase has just been written
                created = await self._confirm.live(created)
        self.asked.named(entry.host_path, why)
        raise Superseded(f"{entry.path}: {why}")

    async def _ask(self, name: str) -> PersistentVolume | None:
        try:
            found = await self.client.get(PERSISTENT_VOLUMES, name)
        except NotThere:
            found = None
        self.asked.answer(name, found)
        return found

    async def _patch(self, volume: PersistentVolume, patch: Any) -> None:
        name = volume.metadata.name
        self.saw(await self.client.patch(PERSISTENT_VOLUMES, name, patch))

    async def _delete(self, volume: PersistentVolume) -> None:
        meta = volume.metadata
        await self.client.delete(
            PERSISTENT_VOLUMES, meta.name, uid=meta.uid, resource_version=meta.resource_version
        )

    # --- the disk ------------------------------------------------------------------------------

    async def _clean_released(self, action: Clean, around: Surroundings) -> None:
        volume = await self._confirm.still_to_be_cleaned(action.volume)
        mode, by = volume.spec.volume_mode or "Filesystem", "job" if action.by_job else "process"
        began = time.monotonic()
        clean_by = self._in_a_job if action.by_job else self._in_this_process
        try:
            method = cleaning_method(action.entry, mode, around)
            with self.stops.of(volume) as stop:
                said = await clean_by(volume, action.entry, method, around, stop)
        except CleaningFailed:
            self.metrics.delete_failed.labels(mode, by).inc()
            raise
        await self._record.end(volume, await self._confirm.still(action.entry, offered=True), said)
        self.events.event(ObjectRef.of_volume(volume.metadata), "Normal", "VolumeCleaned", said)
        # A Job that began only after this would find the next tenant's data.
        await self._confirm.let_go_once_clean(volume, self._by_job.check_none_is_left)
        size = bytes_of(volume.spec.capacity.get("storage", "")) or 0
        self.metrics.deleted.labels(mode, by).inc()
        self.metrics.delete_seconds.labels(mode, by, capacity_label(size), str(method)).observe(
            time.monotonic() - began
        )

    async def _in_this_process(
        self,
        volume: PersistentVolume,
        entry: Entry,
        method: Method,
        around: Surroundings,
        stop: asyncio.Event,
    ) -> str:
        self._say_begun(volume, f"cleaning {entry.path} with {method}")

        async def still() -> None:
            await self._by_job.check_none_is_left(volume)
            await self._confirm.still_to_be_cleaned(volume)

        receipt = await self._clean(volume, entry, method, around, stop, still)
        return receipt.summary()

    async def _in_a_job(
        self,
        volume: PersistentVolume,
        entry: Entry,
        method: Method,
        around: Surroundings,
        stop: asyncio.Event,
    ) -> str:
        def waits(text: str) -> None:
            log.warning(text, extra=_log_about(volume.metadata.name, entry))
            self.events.event(ObjectRef.of_volume(volume.metadata), "Warning", EVENT_WAITS, text)

        name = volume.metadata.name
        async with self._in_turn(name, entry, around, running=self._by_job.runs(volume)):
            said = await self._by_job.clean(
                volume,
                entry,
                method,
                around,
                stop=stop,
                begun=lambda text: self._say_begun(volume, text),
                waits=waits,
            )
        summary = said.summary if said else f"{method}, by a Job whose receipt is lost"
        receipt = said.receipt if said else {}
        log.info("cleaned: %s", summary, extra=_log_about(name, entry) | {"receipt": receipt})
        return summary

    def _say_begun(self, volume: PersistentVolume, text: str) -> None:
        self.events.event(ObjectRef.of_volume(volume.metadata), "Normal", "VolumeDelete", text)

    async def _clean_first(self, action: CleanFirst, around: Surroundings) -> None:
        config = around.classes[action.entry.class_name].config

        async def still_unknown() -> None:
            if await self._ask(action.name) is not None:
                raise Superseded(f"{action.name} exists")

        async def still_wanted() -> None:
            await still_unknown()
            await self._confirm.named_by_none(action.entry, around.node)
            # Checked last: cleaning may have waited for hours, and the class may have changed.
            if self.class_now(action.entry.class_name) != config:
                raise Superseded(f"the class {action.entry.class_name} is not what it was any more")

        await still_unknown()
        method = cleaning_method(action.entry, config.volume_mode, around)
        log.warning("cleaning before first use", extra=log_fields(action))
        with self.stops.of(None) as stop:
            receipt = await self._clean(
                None, action.entry, method, around, stop, still_wanted, action.name
            )
        entry = await self._confirm.still(action.entry, offered=True)
        await self._record.end(None, entry, receipt.summary())

    async def _clean(
        self,
        volume: PersistentVolume | None,
        planned: Entry,
        method: Method,
        around: Surroundings,
        stop: asyncio.Event,
        confirm: Callable[[], Awaitable[object]],
        name: str = "",
    ) -> Receipt:
        """Clean the entry's volume, when its turn at the disk has come, and log the receipt.

        `confirm` asks the API server once more while the volume is locked against other agents;
        then the record is read once more. Without an object, `name` is the name that it will have.
        """
        name = volume.metadata.name if volume else name
        log_about = _log_about(name, planned)
        config = around.classes[planned.class_name].config
        async with self._in_turn(name, planned, around):
            shared_with = around.node if config.selector else None
            entry = await self._confirm.free_to_be_cleaned(planned, shared_with)

            async def still() -> None:
                await confirm()
                await self._record.check_anew(volume, entry)

            log.info("cleaning with %s", method, extra=log_about)
            receipt = await self._clean_target(
                target_of(entry),
                method,
                workers=self.cleaners,
                progress=self._reporter(name, log_about),
                stop=stop,
                timeout=config.cleaning_timeout_seconds,
                confirm=still,
                paces=self.paces.cleaning,
            )
        log.info("cleaned: %s", receipt.summary(), extra=log_about | {"receipt": receipt.as_dict()})
        return receipt

    @asynccontextmanager
    async def _in_turn(
        self, name: str, entry: Entry, around: Surroundings, *, running: bool = False
    ) -> AsyncIterator[None]:
        """Wait for a turn at the entry's disk, and count how the cleaning ends.

        Waiting may take hours: read again afterwards what is to be cleaned. Raises Superseded if
        the class has changed meanwhile: another way of cleaning may be wanted.
        """
        disk = await self._confirm.disk_of(entry)
        config = around.classes[entry.class_name].config
        at_once = config.cleaning_concurrency
        self.metrics.running.inc()
        try:
            async with self._limits.hold(disk, at_once, running=running):
                if self.class_now(entry.class_name) != config:
                    text = f"the class {entry.class_name} is not what it was any more"
                    raise Superseded(text)
                yield
        except CleaningFailed:
            self.metrics.failed.inc()
            raise
        else:
            self.metrics.succeeded.inc()
        finally:
            self.metrics.running.dec()
            self.metrics.cleaning_over(name)
            self.survey.forget(entry.path)

    def _reporter(self, name: str, log_about: dict[str, str]) -> Callable[[Progress], None]:
        said = time.monotonic()

        def report(progress: Progress) -> None:
            nonlocal said
            self.metrics.progress(name, progress)
            if time.monotonic() - said >= PROGRESS_SECONDS:
                said = time.monotonic()
                log.info("still cleaning: %s", progress, extra=log_about)

        return report


def cleaning_method(entry: Entry, mode: str, around: Surroundings) -> Method:
    """How its class wants the entry cleaned, if it was offered in that mode.

    Raises CleaningFailed if the class names no way.
    """
    try:
        return method_for(entry, mode, around.classes[entry.class_name].config)
    except MethodInvalid as error:
        raise CleaningFailed(str(error), touched=False) from error


def _log_about(name: str, entry: Entry) -> dict[str, Any]:
    return {"persistentvolume": name, "class": entry.class_name, "path": entry.path}


def log_fields(action: Action) -> dict[str, str]:
    """The fields of a log record about an action."""
    about = {"path": action.key, "reason": action.reason}
    volume, entry = getattr(action, "volume", None), getattr(action, "entry", None)
    if volume is None and entry is not None:
        about["class"] = entry.class_name
    if volume is not None:
        about |= {"persistentvolume": volume.metadata.name, "class": volume.spec.storage_class_name}
    return about


def adoption(volume: PersistentVolume, node_name: str, identity: Identity | None) -> MergePatch:
    """Adds our label, finalizer and, if given, identity; every other field stays as it is."""
    changes: dict[str, Any] = {"labels": {marks.NODE_LABEL: marks.node_key(node_name)}}
    if identity is not None:
        changes["annotations"] = {marks.IDENTITY_ANNOTATION: to_annotation(identity)}
    # The API server takes no new finalizer on an object that is already being deleted.
    if not is_finalized(volume) and not is_being_deleted(volume):
        changes["finalizers"] = [*volume.metadata.finalizers, marks.FINALIZER]
    return bound_to(volume, **changes)


def recorded(volume: PersistentVolume, generation: str) -> MergePatch:
    """Notes on the object the generation that the volume's record has."""
    return bound_to(volume, annotations={marks.GENERATION_ANNOTATION: generation})


def claimed(volume: PersistentVolume) -> MergePatch:
    """Notes that a claim holds the volume: the note outlives the claim and an emptied claimRef."""
    return bound_to(volume, annotations={marks.CLAIMED_ANNOTATION: claim_of(volume)})
