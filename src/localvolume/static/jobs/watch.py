"""Watches the cleaning Jobs of this node, and takes over those of an older provisioner.

Our node label tells Jobs apart. Jobs that upstream made carry only its own labels: at the start and
at each resync they are given ours, and nothing else about them is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localvolume.config.syntax.names import fault_of_label_value
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.errors import ApiError, LookAgain, NotThere, TellTheAdministrator
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import JOBS
from localvolume.kube.workloads import Job
from localvolume.volumes import marks

if TYPE_CHECKING:
    from localvolume.cleaning.jobs import CleaningJob

log = logging.getLogger(__name__)


@dataclass(eq=False)
class JobWatch:
    """Run `run()` as a task; `known` is set once Jobs were listed, or it is known why not.

    `needed`: whether the configuration wants Jobs. If so, an agent that may not see any needs an
    administrator; if not, it simply has none. If Jobs are needed and the API server refuses them,
    they are asked for again after `again_seconds`.
    """

    client: Client
    namespace: str
    node_name: str
    on_change: Callable[[], None]
    again_seconds: float

    def __post_init__(self) -> None:
        self.known = asyncio.Event()
        self.needed = False
        self._key = marks.node_key(self.node_name)
        self._own = f"{marks.NODE_LABEL}={self._key}"
        self._informer = Informer(
            self.client,
            JOBS,
            namespace=self.namespace,
            label_selector=self._own,
            on_change=self._changed,
        )
        self._unlabelled: dict[str, Job] = {}
        self._refused: ApiError | None = None
        self._news: set[asyncio.Event] = set()
        self._again = asyncio.Event()

    @property
    def jobs(self) -> list[CleaningJob]:
        """All known Jobs, even while nothing newer can be learnt."""
        known = [*self._informer.items.values(), *self._unlabelled.values()]
        return [job for job in map(_read, known) if job is not None]

    @property
    def unknown(self) -> str | None:
        """Why Jobs cannot be seen now, or None if they can."""
        error = self._refused or self._informer.refused
        if error is not None:
            return f"the Jobs in {self.namespace} cannot be seen: {error}"
        if not self._informer.synced.is_set():
            return f"the Jobs in {self.namespace} have not been listed yet"
        return None

    def get(self, name: str) -> CleaningJob | None:
        found = self._informer.items.get(f"{self.namespace}/{name}")
        return _read(found) if found is not None else None

    def of_volume(self, uid: str) -> CleaningJob | None:
        """Our Job for the object with this UID."""
        return next((job for job in self.jobs if job.ours and job.volume_uid == uid), None)

    @property
    def own_label(self) -> str:
        """The selector of what has this node's label."""
        return self._own

    def is_of_this_node(self, labels: Mapping[str, str]) -> bool:
        return labels.get(marks.NODE_LABEL) == self._key

    def is_of_another_node(self, labels: Mapping[str, str]) -> bool:
        """Whether another node's agent labelled it, which may run it only on that node."""
        return marks.NODE_LABEL in labels and not self.is_of_this_node(labels)

    def saw(self, job: Job) -> None:
        """Take in the API server's answer to our own write at once."""
        self._informer.apply_own_write(job)

    def ask_again(self) -> None:
        """Look again for an older provisioner's Jobs, and whether we may see any."""
        self._again.set()

    @contextlib.asynccontextmanager
    async def news(self) -> AsyncIterator[asyncio.Event]:
        """An event that is set whenever any Job has changed; the waiting caller clears it."""
        event = asyncio.Event()
        self._news.add(event)
        try:
            yield event
        finally:
            self._news.discard(event)

    def _changed(self, *_: object) -> None:
        for event in self._news:
            event.set()
        self.on_change()

    async def run(self) -> None:
        """Never returns."""
        backoff = Backoff()
        watching: asyncio.Task[None] | None = None
        try:
            while True:
                self._again.clear()
                try:
                    await self._take_over()
                except (TellTheAdministrator, NotThere) as error:
                    self._refuse(error)
                except ApiError as error:
                    log.warning("jobs: %s", error)
                    await asyncio.sleep(backoff.next(error.after))
                    continue
                else:
                    backoff.reset()
                    if self._refused is not None:
                        log.info("the Jobs in %s can be seen now", self.namespace)
                        self._refused = None
                    watching = watching or asyncio.create_task(self._informer.run())
                    await self._informer.answered.wait()
                    self.known.set()
                    self._changed()
                with contextlib.suppress(TimeoutError):
                    refused = self.needed and self._refused is not None
                    async with asyncio.timeout(self.again_seconds if refused else None):
                        await self._again.wait()
        finally:
            if watching is not None:
                watching.cancel()

    def _refuse(self, error: ApiError) -> None:
        if self._refused is None or str(self._refused) != str(error):
            # If no Jobs are wanted, none are missed: then the agent has no rights for them.
            level = logging.WARNING if self.needed else logging.INFO
            log.log(level, "the Jobs in %s cannot be seen: %s", self.namespace, error)
        self._refused = error
        self.known.set()
        self._changed()

    async def _take_over(self) -> None:
        """Give our label to upstream's Jobs of this node. Raises ApiError if none may be seen.

        A Job that cannot be labelled is remembered as it is, so that its volume is not touched.
        """
        named = f"{marks.HOSTNAME_LABEL}={self.node_name}"
        if fault_of_label_value(self.node_name):
            # No label can hold that name, so upstream has no Jobs here. Check if we may see any.
            await self.client.list_page(JOBS, self.namespace, label_selector=self._own, limit=1)
            return
        found: dict[str, Job] = {}
        cont = ""
        while True:
            page = await self.client.list_page(
                JOBS,
                self.namespace,
                label_selector=f"{named},!{marks.NODE_LABEL}",
                cont=cont,
            )
            found |= {job.metadata.name: job for job in page.items if _is_upstreams(job)}
            cont = page.cont
            if not cont:
                break
        self._unlabelled = found
        for job in list(found.values()):
            await self._label(job)

    async def _label(self, job: Job) -> None:
        meta = job.metadata
        label = {marks.NODE_LABEL: self._key}
        try:
            labelled = await self.client.patch(
                JOBS,
                meta.name,
                MergePatch({"metadata": {"uid": meta.uid, "labels": label}}),
                self.namespace,
            )
        except (LookAgain, NotThere):
            log.debug("the Job %s is gone already", meta.name)
        except TellTheAdministrator as error:
            log.warning("the Job %s of an older provisioner: %s", meta.name, error)
            return
        else:
            log.info("took the Job %s of an older provisioner in", meta.name)
            self._informer.apply_own_write(labelled)
        # From here on the informer has it, or gets it before `known` is set.
        del self._unlabelled[meta.name]


# Imported when there is a Job: most agents never meet one.


def _read(job: Job) -> CleaningJob | None:
    from localvolume.cleaning import jobs

    return jobs.read_job(job)


def _is_upstreams(job: Job) -> bool:
    from localvolume.cleaning import jobs

    return jobs.is_upstreams(job)
