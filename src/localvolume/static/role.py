"""What wakes the static role up, and its look: from facts to a plan, from the plan to acts.

A key (one path) never has two acts under way.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from localvolume.cleaning.run import Cleaning, clean
from localvolume.config.model import ClassConfig, Configuration
from localvolume.host.block.sysfs import UDEV_DATA
from localvolume.host.process.workers import UNREADABLE, Workers
from localvolume.kube.client import Client
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer
from localvolume.kube.objects import Node, PersistentVolume, StorageClass
from localvolume.kube.ownpod import OwnPod
from localvolume.reconcile.loop import CannotLook, Loop, Rest
from localvolume.static.act import Acts
from localvolume.static.asked import Asked
from localvolume.static.executor import Executor
from localvolume.static.facts.known import Changes
from localvolume.static.facts.survey import READERS, Survey
from localvolume.static.jobs.watch import JobWatch
from localvolume.static.metrics import StaticMetrics
from localvolume.static.model import ClassFacts, Facts, Hold
from localvolume.static.paces import StaticPaces
from localvolume.static.plan.plan import is_to_come, plan
from localvolume.static.plan.surroundings import Surroundings, surroundings
from localvolume.static.plan.world import World
from localvolume.static.recording import Records
from localvolume.volumes.manifest import node_facts
from localvolume.volumes.objects import is_on_offer, is_static, path_of

log = logging.getLogger(__name__)

GRACE_SECONDS = 60.0
"""How long a volume may be missing before its offer is withdrawn."""

OWING_SECONDS = 0.1
"""How much rest may be put off: a directory is made, and a volume is mounted on it right after."""


@dataclass(eq=False, kw_only=True)
class StaticRole:
    """The static volumes of one node, from when they appear until they are clean again."""

    client: Client
    events: EventRecorder
    workers: Workers
    metrics: StaticMetrics
    volumes: Informer[PersistentVolume]
    storage_classes: Informer[StorageClass]
    nodes: Informer[Node]
    jobs: JobWatch
    own_pod: OwnPod
    node_name: str
    job_image: str | None
    configuration: Configuration
    grace_seconds: float = GRACE_SECONDS
    paces: StaticPaces
    clean: Cleaning = clean
    kubelet_directory: str | None = None
    records_directory: str | None = None
    on_resync: Callable[[], None] = lambda: None
    on_offered: Callable[[], None] = lambda: None
    """Called after each look that found nothing left to be offered."""

    def __post_init__(self) -> None:
        self._salt = secrets.token_hex(16)
        records = Records(self.records_directory)
        self.readers = Workers(limit=READERS)
        """The threads that read what is not offered, to be shown if they hang."""
        self._survey = Survey(
            self.workers,
            self.paces,
            kubelet_directory=self.kubelet_directory,
            records=records,
            readers=self.readers,
            look_again=self.objects_changed,
        )
        self._asked = Asked(self.paces.remembered)
        acts = Acts(
            client=self.client,
            events=self.events,
            survey=self._survey,
            workers=self.workers,
            records=records,
            metrics=self.metrics,
            saw=self.volumes.apply_own_write,
            asked=self._asked,
            jobs=self.jobs,
            class_now=self._class_now,
            paces=self.paces,
            clean=self.clean,
        )
        self.cleaners = acts.cleaners
        """The threads of cleanings, to be shown if they hang."""
        self._executor = Executor(
            acts, self.events, self.metrics, wake=self.objects_changed, paces=self.paces
        )
        self.loop = Loop(
            "static volumes",
            self._look,
            rest=Rest(owing=OWING_SECONDS),
            resync=lambda: self.configuration.min_resync_period_seconds,
            at_resync=self.resync,
            unreadable=UNREADABLE,
        )
        self._changes = Changes(everything=True)
        self._missing_since: dict[str, float] = {}
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> dict[str, str]:
        """What keeps a class ("": the whole node) from being served; the role is ready if empty."""
        return {"": self.loop.problem} if self.loop.problem else self._problems

    # --- what wakes it up ----------------------------------------------------------------------

    def mounts_changed(self) -> None:
        """Something was mounted or unmounted; the table tells what."""
        self._changes.host = True
        self.loop.wake()

    def directory_changed(self, directory: str, name: str | None) -> None:
        """An entry of a discovery directory was made, removed or renamed; None: any of them."""
        self._changes.paths.add(f"{directory}/{name}" if name else directory)
        self.mounts_changed()

    def device_changed(self, device: str | None) -> None:
        """A block device ("major:minor") came, went or changed; None: any may have."""
        if device is None:
            self.look_at_everything()
            return
        self._look_at_device(device)
        asyncio.get_running_loop().call_later(self.paces.udev, self._look_at_device, device)

    def _look_at_device(self, device: str) -> None:
        self._changes.devices.add(device)
        self.mounts_changed()

    def look_at_everything(self) -> None:
        """Read everything again: what is remembered of the disks may be wrong."""
        self._changes.everything = True
        self.mounts_changed()

    def volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        """A PersistentVolume of this node changed."""
        self._executor.objects_changed(self.volumes.items)
        offered = new is not None and is_on_offer(new) and (old is None or is_on_offer(old))
        if not (offered and self._executor.publishing):
            self.loop.wake()

    def objects_changed(self, *_: object) -> None:
        """A StorageClass, Job or the Node changed, or something was done to a volume."""
        self._executor.objects_changed(self.volumes.items)
        self.loop.wake()

    def resync(self) -> None:
        """Look at everything again, whatever is remembered, and say again what is held."""
        self._changes.everything = True
        self._asked.clear()
        self.jobs.ask_again()
        self._executor.say_again()
        self.on_resync()
        self.mounts_changed()

    def reconfigure(self, configuration: Configuration) -> None:
        """Use another configuration from the next look on."""
        self.configuration = configuration
        self.jobs.needed = configuration.use_job_for_cleaning
        self._executor.forget_waiting()
        self.resync()

    # --- the loop ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Never returns; on cancellation stops cleanings between two steps and waits for them."""
        try:
            for informer in (self.volumes, self.storage_classes, self.nodes):
                await informer.synced.wait()
            # These waits end even if the answer is no: then the agent does without, or says so.
            await self.jobs.known.wait()
            await self.own_pod.answered.wait()
            await self.loop.run()
        finally:
            await asyncio.gather(self._executor.stop(), self._survey.stop())
            self.readers.close()

    async def _look(self) -> float:
        """Look; returns in how many seconds to look again. Raises CannotLook, Hung, OSError."""
        began = time.monotonic()
        around = self._surroundings()
        changes, self._changes = self._changes, Changes(host=False)
        configuration = self.configuration
        try:
            found = await self._survey.look(
                around.to_look_at(),
                {path_of(volume) for volume in self._own_volumes().values()},
                changes,
                configuration.groups,
            )
        except BaseException:
            # The list of what had changed is lost now.
            self._changes.everything = True
            raise
        if self.configuration is not configuration:
            return await self._look()
        for name, text in found.problems.items():
            around.classes[name] = dataclasses.replace(around.classes[name], problem=text)
        # Nothing is awaited from here until the acts begin, so what is published meanwhile is
        # always in `volumes` or in `busy`.
        facts = Facts(
            node=around.node,
            options=around.options,
            classes=around.classes,
            entries=found.entries,
            volumes=self._own_volumes(),
            asked=self._asked.fresh(),
            others=self._asked.fresh_named(),
            busy=self._executor.busy,
            grace_seconds=self.grace_seconds,
            paces=self.paces,
            jobs=self.jobs.jobs,
            use_jobs=around.jobs is not None,
            jobs_unknown=self.jobs.unknown if around.jobs else None,
            pods_unseen=found.pods_unseen,
            salt=self._salt,
        )
        actions = plan(dataclasses.replace(facts, missing_seconds=self._missing(facts)))
        self._tell(around, facts)
        self._executor.begin(actions, around)
        # After it: who reads in another thread that there was a look, or that something is held,
        # finds what was said of it.
        self.metrics.tell(facts.volumes.values(), actions)
        again = [action.again_seconds for action in actions if isinstance(action, Hold)]
        if found.problems or facts.jobs_unknown:
            # Nothing reports that a directory answers again, or that Jobs can be seen again, and
            # there may be no volume to hold.
            again.append(self.paces.look_again)
        self.metrics.look_seconds.set(time.monotonic() - began)
        if not self._problems and not any(is_to_come(action) for action in actions):
            self.on_offered()
        return min((seconds for seconds in again if seconds), default=0.0)

    def _own_volumes(self) -> dict[str, PersistentVolume]:
        """The PersistentVolumes without those made for claims, which are other roles'."""
        return {name: one for name, one in self.volumes.items.items() if is_static(one)}

    def _surroundings(self) -> Surroundings:
        """The node and the configured classes. Raises CannotLook."""
        node = node_facts(self.node_name, self.nodes.items.get(self.node_name))
        if isinstance(node, str):
            raise CannotLook(node)
        return surroundings(
            self.configuration,
            node,
            self.storage_classes.items,
            namespace=self.jobs.namespace,
            # Without an image, a configuration that wants Jobs is never in force.
            image=self.job_image or "",
            sees_udev=os.path.isdir(UDEV_DATA),
            pod=self.own_pod.pod,
        )

    def _class_now(self, name: str) -> ClassConfig | None:
        return self.configuration.storage_classes.get(name)

    def _missing(self, facts: Facts) -> dict[str, float]:
        """For how long each volume has been missing, in seconds, by UID.

        The count starts over with the process: waiting longer than needed does no harm.
        """
        world, now = World(facts), time.monotonic()
        self._missing_since = {
            volume.metadata.uid: self._missing_since.get(volume.metadata.uid, now)
            for volume in facts.volumes.values()
            if world.vanished(volume)
        }
        return {uid: now - since for uid, since in self._missing_since.items()}

    def _tell(self, around: Surroundings, facts: Facts) -> None:
        problems = {name: _problem_of(facts) for name, facts in around.classes.items()}
        for name, text in problems.items():
            if text and self._problems.get(name) != text:
                log.error("class %s: %s", name, text)
        self.metrics.classes({name: bool(text) for name, text in problems.items()})
        if facts.jobs_unknown:
            problems[""] = f"nothing can be cleaned: {facts.jobs_unknown}"
        elif facts.pods_unseen and any(entry.kind == "filesystem" for entry in facts.entries):
            problems[""] = f"no filesystem can be cleaned: {facts.pods_unseen}"
            if self._problems.get("") != problems[""]:
                log.error(problems[""])
        self._problems = {name: text for name, text in problems.items() if text}


def _problem_of(facts: ClassFacts) -> str:
    if facts.problem:
        return facts.problem
    return "" if facts.exists else "there is no StorageClass of that name"
