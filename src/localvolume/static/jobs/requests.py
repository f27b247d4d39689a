"""The requests to the API server about one cleaning Job: get, make, delete, its pods' words."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Mapping
from typing import Any

from localvolume.cleaning.jobpods import (
    Said,
    Waiting,
    last_words,
    not_ended,
    receipt_of,
    why_waiting,
)
from localvolume.cleaning.jobs import VOLUME_UID_LABEL, CleaningJob, job_name, read_job
from localvolume.cleaning.receipt import CleaningFailed
from localvolume.kube.client import Client
from localvolume.kube.errors import (
    AlreadyThere,
    ApiError,
    LookAgain,
    NotThere,
    TellTheAdministrator,
)
from localvolume.kube.kinds import JOBS, PODS
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.workloads import Pod
from localvolume.static.jobs.watch import JobWatch

log = logging.getLogger(__name__)


class JobRequests:
    """Each request tells the watch the answer, and raises the errors of kube.errors."""

    def __init__(self, client: Client, watch: JobWatch) -> None:
        self._client = client
        self._watch = watch

    def named(self, name: str) -> str:
        """The Job as messages name it."""
        return f"the Job {self._watch.namespace}/{name}"

    async def live(self, name: str) -> CleaningJob | None:
        """The Job of that name (of the form that cleaning Jobs have) as it is now.

        Anybody who knows a volume's UID can make a Job of that name, even another node's agent. But
        that agent may not give it this node's label, and without that no Job is taken for ours.
        """
        try:
            found = await self._client.get(JOBS, name, self._watch.namespace)
        except NotThere:
            return None
        job = read_job(found)
        labels = found.metadata.labels
        if job is not None and not self._watch.is_of_this_node(labels):
            return dataclasses.replace(
                job, ours=False, another_nodes=self._watch.is_of_another_node(labels)
            )
        self._watch.saw(found)
        return job

    async def of_volume(self, uid: str) -> CleaningJob | None:
        """The Job for the object with this UID as it is now: ours, whatever its name; otherwise the
        one that has its name."""
        named = await self.live(job_name(uid))
        if named is not None and named.ours:
            return named
        selector = f"{self._watch.own_label},{VOLUME_UID_LABEL}={uid}"
        page = await self._client.list_page(
            JOBS, self._watch.namespace, label_selector=selector, limit=0
        )
        for found in page.items:
            job = read_job(found)
            if job is not None and job.ours and job.volume_uid == uid:
                self._watch.saw(found)
                return job
        return named

    async def make(self, body: Mapping[str, Any]) -> CleaningJob | None:
        """Make a Job; None if one of its name is there. Raises CleaningFailed if refused."""
        try:
            made = await self._client.create(JOBS, body)
        except AlreadyThere:
            return None
        except (TellTheAdministrator, NotThere) as error:
            raise CleaningFailed(f"its Job cannot be made: {error}", touched=False) from error
        self._watch.saw(made)
        return read_job(made)

    async def delete(self, job: CleaningJob) -> None:
        """Delete this very Job; it goes after its pod has gone."""
        with contextlib.suppress(NotThere, LookAgain):
            await self._client.delete(
                JOBS, job.name, self._watch.namespace, uid=job.uid, propagation="Foreground"
            )

    async def receipt(self, job: CleaningJob) -> Said | None:
        """The receipt that a successful Job wrote; None if it is lost or may not be seen."""
        with contextlib.suppress(ApiError):
            return receipt_of(await self._pods(job))
        return None

    async def failure(self, job: CleaningJob) -> CleaningFailed:
        """Why a failed Job failed: its pod's last words, and its own condition."""
        try:
            words = last_words(await self._pods(job))
        except ApiError as error:
            words = f"its pod cannot be seen: {error}"
        # The pod's words come first: an Event has room for a thousand bytes.
        why = f"{words or 'its pod is gone'} ({job.reason or 'no reason given'})"
        return CleaningFailed(f"{self.named(job.name)} failed: {why}")

    async def why_waiting(self, job: CleaningJob) -> Waiting | None:
        return why_waiting(await self._pods(job))

    async def left_of(self, volume: PersistentVolume) -> list[str]:
        """Pods of the volume's earlier Jobs that have not ended, as far as pods may be seen.

        If a Job is deleted without its pod, nobody owns the pod, and it still cleans. Another
        node's agent may label a pod with any UID, but runs none here.
        """
        try:
            found = await self._labelled(f"{VOLUME_UID_LABEL}={volume.metadata.uid}")
            return not_ended(
                [pod for pod in found if not self._watch.is_of_another_node(pod.metadata.labels)]
            )
        except TellTheAdministrator as error:
            log.info("pods that earlier Jobs have left cannot be seen: %s", error)
            return []

    async def _pods(self, job: CleaningJob) -> list[Pod]:
        return await self._labelled(f"batch.kubernetes.io/controller-uid={job.uid}")

    async def _labelled(self, selector: str) -> list[Pod]:
        page = await self._client.list_page(
            PODS, self._watch.namespace, label_selector=selector, limit=0
        )
        return list(page.items)
