"""Cleans the volume of a PersistentVolume in a Job: makes it, waits for it, and does not trust it.

All that a crash could lose is in the API server: the Job is named after the UID of the object it
cleans for, so the next agent finds it. Only the failures already reported are remembered here.

    none -> made -> unfinished -> succeeded -> checked by ourselves -> the object may go
                        |             `-> not clean: reported, then like failed
                        `-> failed: reported once, removed at the next attempt, made again
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from localvolume.cleaning.jobpods import Said
from localvolume.cleaning.jobs import CleaningJob, cleaning_job, job_name, spare_job_name
from localvolume.cleaning.method import Method
from localvolume.cleaning.order import Order
from localvolume.cleaning.receipt import CleaningFailed, CleaningRefused, CleaningStopped
from localvolume.cleaning.verify import verify
from localvolume.host.process.workers import Workers
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError
from localvolume.kube.objects import PersistentVolume
from localvolume.static.jobs.requests import JobRequests
from localvolume.static.jobs.watch import JobWatch
from localvolume.static.model import Entry
from localvolume.static.paces import StaticPaces
from localvolume.static.plan.content import strictest_mode
from localvolume.static.plan.surroundings import Surroundings
from localvolume.static.preconditions import Confirm, Superseded, target_of
from localvolume.static.writing import RecordWriter

log = logging.getLogger(__name__)

GONE_SECONDS: Final = 60.0
"""How long a Job and its pod may take to go before that is reported as a failure."""

Tell = Callable[[str], None]


@dataclass(eq=False)
class JobCleaner:
    """One call of `clean` is one cleaning; `remove` ends a Job that goes on by itself."""

    client: Client
    watch: JobWatch
    confirm: Confirm
    record: RecordWriter
    workers: Workers
    paces: StaticPaces

    def __post_init__(self) -> None:
        self._ask = JobRequests(self.client, self.watch)
        self._told: set[str] = set()
        """UIDs of Jobs whose failure was reported: they are removed before the next is made."""

    def runs(self, volume: PersistentVolume) -> bool:
        """Whether a Job for this object is there already, so that it need not wait its turn."""
        job = self.watch.of_volume(volume.metadata.uid)
        return job is not None and job.state == "unfinished"

    async def clean(
        self,
        volume: PersistentVolume,
        planned: Entry,
        method: Method,
        around: Surroundings,
        *,
        stop: asyncio.Event,
        begun: Tell,
        waits: Tell,
    ) -> Said | None:
        """Have a Job clean the volume, and check it; returns the Job's receipt, None if lost.

        `stop` ends the waiting, but the Job goes on. `begun` is told which Job was made; `waits` is
        told, once for each reason, why it does not run. Raises CleaningFailed, CleaningStopped,
        Superseded, and the errors of kube.errors.
        """
        job = await self._begin(volume, planned, method, around, stop, begun, waits)
        await self._wait_for_end(job, volume, stop, waits)
        entry = await self.confirm.still(planned, offered=True)
        try:
            await verify(
                target_of(entry),
                method,
                workers=self.workers,
                stop=stop,
                paces=self.paces.cleaning,
            )
        except CleaningRefused:
            raise  # Somebody uses the volume: that says nothing of the Job; check again later.
        except CleaningFailed as error:
            self._told.add(job.uid)
            text = f"{self._ask.named(job.name)} ended well, but the volume is not clean"
            raise CleaningFailed(f"{text}: {error.reason}") from error
        return await self._ask.receipt(job)

    async def remove(self, job: CleaningJob) -> None:
        """Delete a Job and its pod before its end: what it cleans is to stay as it is.

        Raises the errors of kube.errors.
        """
        log.warning("removing %s: its volume is to be kept", self._ask.named(job.name))
        await self._ask.delete(job)

    async def check_none_is_left(self, volume: PersistentVolume) -> None:
        """Raises Superseded if a Job for this object is not finished: another agent made it.
        Raises CleaningFailed if one of its name is not ours.

        The lock keeps the two from working at once. But a Job does not ask the API server whether
        its volume still needs cleaning. If Jobs cannot be seen, none are in use.
        """
        if self.watch.unknown is not None:
            return
        job = await self._ask.of_volume(volume.metadata.uid)
        if job is not None and job.another_nodes:
            return
        if job is not None and not job.ours:
            raise self._not_ours(job)
        if job is not None and job.state == "unfinished":
            raise Superseded(f"{self._ask.named(job.name)} is not finished")

    # --- a Job to wait for ---------------------------------------------------------------------

    async def _begin(
        self,
        volume: PersistentVolume,
        planned: Entry,
        method: Method,
        around: Surroundings,
        stop: asyncio.Event,
        begun: Tell,
        waits: Tell,
    ) -> CleaningJob:
        """The Job that cleans for this object: unfinished or succeeded, and made if needed."""
        uid = volume.metadata.uid
        while True:
            _check(stop)
            job = await self._ask.of_volume(uid)
            if job is None or job.another_nodes:
                name = job_name(uid) if job is None else spare_job_name(uid)
                made = await self._make(volume, planned, method, around, name)
                if made is not None:
                    if job is not None:
                        text = (
                            f"{self._ask.named(job.name)} has its name, but belongs to another node"
                        )
                        log.warning("%s: that one is called %s", text, name)
                        waits(text)
                    begun(f"cleaning {planned.path} with {method} in {self._ask.named(name)}")
                    return made
            elif not job.ours or job.volume_uid != volume.metadata.uid:
                raise self._not_ours(job)
            elif job.uid in self._told:
                await self._remove(job, stop)
            elif job.state == "failed":
                self._told.add(job.uid)
                raise await self._ask.failure(job)
            elif job.state == "unfinished" and job.being_deleted:
                await self._until_gone(job, stop)
            else:
                return job

    def _not_ours(self, job: CleaningJob) -> CleaningFailed:
        text = f"{self._ask.named(job.name)} is not this agent's for this volume: remove it"
        return CleaningFailed(text, touched=False)

    async def _make(
        self,
        volume: PersistentVolume,
        planned: Entry,
        method: Method,
        around: Surroundings,
        name: str,
    ) -> CleaningJob | None:
        """Make a Job, with everything asked again right before; None if one is there by now."""
        if around.jobs is None:
            raise Superseded("its Job is gone, and no new one is wanted")
        if left := await self._ask.left_of(volume):
            raise CleaningFailed(f"pods of an earlier Job have not ended: {', '.join(left)}")
        config = around.classes[planned.class_name].config
        shared_with = around.node if config.selector else None
        entry = await self.confirm.free_to_be_cleaned(planned, shared_with)
        volume = await self.confirm.still_to_be_cleaned(volume)
        self.record.check(volume, entry)
        block = entry.kind == "block"
        order = Order(
            kind="block" if block else "filesystem",
            mode=strictest_mode(volume.spec.volume_mode, config),
            path=entry.path,
            device=entry.device,
            size_bytes=entry.size_bytes,
            identity=entry.identity,
            timeout_seconds=config.cleaning_timeout_seconds,
            command=config.block_cleaner_command if block else None,
        )
        now = datetime.now(UTC)
        body = cleaning_job(
            order, method, volume, config, around.node, around.jobs, now, self.paces.jobs, name
        )
        return await self._ask.make(body)

    async def _remove(self, job: CleaningJob, stop: asyncio.Event) -> None:
        if not job.being_deleted:
            log.info("removing %s, which did not succeed", self._ask.named(job.name))
            await self._ask.delete(job)
        await self._until_gone(job, stop)
        self._told.discard(job.uid)

    async def _until_gone(self, job: CleaningJob, stop: asyncio.Event) -> None:
        """Foreground deletion: the Job goes after its pod. Raises CleaningFailed if it stays."""
        deadline = asyncio.get_running_loop().time() + GONE_SECONDS
        async with self.watch.news() as news:
            while True:
                news.clear()
                live = await self._ask.live(job.name)
                if live is None or live.uid != job.uid:
                    return
                left = deadline - asyncio.get_running_loop().time()
                if left <= 0:
                    raise CleaningFailed(
                        f"{self._ask.named(job.name)} is being deleted, and its pod is still there"
                    )
                await _next(news, stop, min(left, self.paces.job_look))

    # --- its end -------------------------------------------------------------------------------

    async def _wait_for_end(
        self, job: CleaningJob, volume: PersistentVolume, stop: asyncio.Event, waits: Tell
    ) -> None:
        """Return when it has succeeded. Raises CleaningFailed for every other end."""
        told: set[str] = set()
        loop = asyncio.get_running_loop()
        look_at = loop.time() + self.paces.job_look
        now: CleaningJob | None = job
        async with self.watch.news() as news:
            while True:
                if now is None or now.uid != job.uid:
                    # A Job goes with its PersistentVolume if that is removed: then that is why.
                    await self.confirm.still_to_be_cleaned(volume)
                    raise CleaningFailed(f"{self._ask.named(job.name)} was deleted before its end")
                if now.state == "succeeded":
                    return
                if now.state == "failed":
                    self._told.add(now.uid)
                    raise await self._ask.failure(now)
                await _next(news, stop, max(0.0, look_at - loop.time()))
                news.clear()
                now = self.watch.get(job.name)
                late = loop.time() >= look_at
                if late or now is None or now.uid != job.uid:
                    now = await self._ask.live(job.name)
                if late:
                    look_at = loop.time() + self.paces.job_look
                    if now is not None and now.state == "unfinished":
                        await self._say_why_it_waits(now, told, waits)

    async def _say_why_it_waits(self, job: CleaningJob, told: set[str], waits: Tell) -> None:
        try:
            waiting = await self._ask.why_waiting(job)
        except ApiError as error:
            log.info("%s is not finished; its pod cannot be seen: %s", job.name, error)
            return
        if waiting is None:
            log.info("%s is not finished", self._ask.named(job.name))
        elif waiting.reason not in told:
            told.add(waiting.reason)
            waits(f"{self._ask.named(job.name)} waits: {waiting.text}")


async def _next(news: asyncio.Event, stop: asyncio.Event, seconds: float) -> None:
    """Wait for news of Jobs, or until the time is over. Raises CleaningStopped at the stop."""
    waiting = [asyncio.ensure_future(event.wait()) for event in (news, stop)]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    _check(stop)


def _check(stop: asyncio.Event) -> None:
    if stop.is_set():
        raise CleaningStopped("nobody waits for it any more; a Job that runs goes on")
