"""The disks of one node: looked at when something changes, and formatted once that is approved.

Only what this process has said and tried is remembered: the approvals are in the configuration, and
the disks show what was done.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Final, get_args

from prometheus_client import CollectorRegistry

from localvolume.config.model import Configuration
from localvolume.disks.act import CarryOut, Outcome, PlanChanged, carry_out, mount_again
from localvolume.disks.facts import look
from localvolume.disks.model import DiskPlan, Judged, Verdict
from localvolume.disks.plan.naming import stable, written
from localvolume.disks.plan.owners import identities
from localvolume.disks.plan.plan import plan
from localvolume.host.block.disklist import BY_ID
from localvolume.host.process.workers import UNREADABLE, Workers
from localvolume.kube.correlate import EventType
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.informer import Informer
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.ownpod import OwnPod
from localvolume.kube.standing import Standing
from localvolume.process.metrics import Metrics, gauge
from localvolume.reconcile.loop import CannotLook, Loop, Rest
from localvolume.volumes.capacity import quantity
from localvolume.volumes.objects import path_of

VERDICTS: Final[tuple[str, ...]] = get_args(Verdict)


class DisksMetrics(Metrics):
    """How many disks have which verdict."""

    # fmt: off
    disks = gauge("localvolume_disks",
        "Disks and partitions of this node by what the plan says of them: format and link "
        "(once approved), mount, done, hold (a filter matches, and something prevents it), "
        "skip (no filter matches)", "verdict")
    # fmt: on

    def tell(self, rows: Iterable[Judged]) -> None:
        """The verdicts of a look at all disks; none if no disks are configured any more."""
        counted = Counter(row.verdict for row in rows)
        for verdict in VERDICTS:
            self.disks.labels(verdict).set(counted[verdict])  # type: ignore[index]


log = logging.getLogger(__name__)

RESYNC_SECONDS: Final = 600.0
"""How often everything is looked at again if nothing changes."""

REST_SECONDS: Final = 2.0
"""How long after a change the look begins: udev makes its links meanwhile."""

RETRY_SECONDS: Final = 600.0
"""How soon what failed is tried again."""


@dataclass(eq=False, kw_only=True)
class DisksRole:
    """Run `run()` as a task."""

    events: EventRecorder
    workers: Workers
    registry: CollectorRegistry
    volumes: Informer[PersistentVolume]
    own_pod: OwnPod
    node_name: str
    configuration: Configuration
    recheck_seconds: float
    tell: Callable[[DiskPlan | None], object]
    """Told what there is after each look; None: no disks are configured."""
    rest_seconds: float = REST_SECONDS
    retry_seconds: float = RETRY_SECONDS
    by_id: str = BY_ID
    carry_out: CarryOut = carry_out

    def __post_init__(self) -> None:
        self._metrics = DisksMetrics(self.registry)
        rest = Rest(longest=0.0)
        self.loop = Loop(
            "disks",
            self._look,
            rest=rest,
            settle=self.rest_seconds,
            unreadable=UNREADABLE,
        )
        self._said: set[tuple[str, str]] = set()
        self._failures: dict[tuple[str, str], Standing] = {}
        """What failed, by its reason and the words that name the disk."""
        self._known_digest = ""
        self._last_digest: str | None = None
        self._tried: dict[str, float] = {}
        self._carried_out: set[str] = set()

    def changed(self, *_: object) -> None:
        """A block device came, went or changed."""
        self.loop.wake()

    def reconfigure(self, configuration: Configuration) -> None:
        """Use another configuration from now on."""
        if (configuration.disks, configuration.storage_classes) != (
            self.configuration.disks,
            self.configuration.storage_classes,
        ):
            self.configuration = configuration
            self.loop.wake()

    async def run(self) -> None:
        """Never returns."""
        # All PersistentVolumes must be known before any disk counts as unused.
        await self.volumes.synced.wait()
        await self.own_pod.answered.wait()
        await self.loop.run()

    async def _look(self) -> float:
        """Look; returns in how many seconds to look again. Raises CannotLook, Hung, OSError."""
        configuration = self.configuration
        config = configuration.disks
        if config is None:
            self._metrics.tell(())
            self.tell(None)
            self._forget_failures_but(set())
            return RESYNC_SECONDS
        named = {path_of(volume): name for name, volume in self.volumes.items.items()}
        named.pop("", None)
        try:
            facts = await look(
                *(self.node_name, config, configuration.storage_classes.values(), named),
                *(self.workers,),
                recorded=identities(self.volumes.items.values()),
                by_id=self.by_id,
                pod=self.own_pod.pod,
            )
        except ValueError as error:
            raise CannotLook(f"the disks cannot be looked at: {error}", RESYNC_SECONDS) from error
        found = plan(facts)
        self._metrics.tell(found.rows)
        self.tell(found)
        mounts = {("DiskMountFailed", _named(row)) for row in found.rows if row.verdict == "mount"}
        formats = {("DiskFormatFailed", _named(row)) for row in found.todo if found.approved}
        self._forget_failures_but(mounts | formats)
        if found.digest != self._last_digest:
            self._last_digest = found.digest
            asyncio.get_running_loop().call_later(self.recheck_seconds, self.loop.wake)
        for row in found.rows:
            if row.verdict == "mount" and self._may_try(_attachment(row)):
                outcome = await mount_again(row, self.workers)
                self._ended(outcome, "DiskMounted", "DiskMountFailed")
        if found.digest and not found.approved:
            self._tell_unapproved(found)
        elif found.digest and found.digest not in self._carried_out:
            await self._carry_out(found, configuration)
        return RESYNC_SECONDS

    async def _carry_out(self, found: DiskPlan, configuration: Configuration) -> None:
        self._known_digest = found.digest
        if not self._may_try(found.digest):
            return
        try:
            outcomes = await self.carry_out(
                *(found, self.workers),
                by_id=self.by_id,
                approved=lambda: self.configuration is configuration,
            )
        except PlanChanged as changed:
            text = f"nothing was done of the plan {found.digest}: {changed}"
            self._say("Warning", "DiskPlanChanged", text)
            self._tried.pop(found.digest)
            asyncio.get_running_loop().call_later(self.recheck_seconds, self.loop.wake)
            return
        for outcome in outcomes:
            self._ended(outcome, "DiskFormatted", "DiskFormatFailed")
        if all(outcome.path for outcome in outcomes):
            self._carried_out.add(found.digest)
            self._known_digest = ""
        self.loop.wake()

    def _may_try(self, what: str) -> bool:
        """Whether to try it now: failures again after a while, successes never by this process."""
        now = time.monotonic()
        if what in self._tried and now - self._tried[what] < self.retry_seconds:
            return False
        self._tried[what] = now
        return True

    def _ended(self, outcome: Outcome, done: str, failed: str) -> None:
        if outcome.path:
            # Somebody who unmounts it later has a reason to.
            self._tried[_attachment(outcome.judged)] = math.inf
        self._tell(outcome, done, failed)

    # --- saying it -----------------------------------------------------------------------------

    def _tell_unapproved(self, found: DiskPlan) -> None:
        names = ", ".join(row.disk.name for row in found.todo)
        how = (
            f"see them with localvolume plan --node {self.node_name}, and approve by adding"
            f" {found.digest} to disks.approved"
        )
        changed = bool(found.partly) or self._known_digest not in ("", found.digest)
        self._known_digest = found.digest
        if changed:
            text = "nothing is done, because what would be done is not what was planned or approved"
            self._say("Warning", "DiskPlanChanged", f"{text} ({names}): {how}")
        else:
            self._say(
                "Normal", "DisksNotApproved", f"these disks would be formatted, {names}: {how}"
            )

    def _tell(self, outcome: Outcome, done: str, failed: str) -> None:
        what = _named(outcome.judged)
        if outcome.failure:
            if (failed, what) not in self._failures:
                self._failures[failed, what] = Standing(self._event, failed, done)
            for text in self._failures[failed, what].stands(f"{what}: {outcome.failure}"):
                log.warning("%s: %s", failed, text)
            return
        if (failed, what) in self._failures:
            self._failures.pop((failed, what)).forget()
        wanted = outcome.judged.filter
        kind = (wanted.fs_type if wanted else "") or "a link"
        text = f"{what} is a volume now: {kind} at {outcome.path}"
        log.info("%s: %s", done, text)
        self._event("Normal", done, text)

    def _forget_failures_but(self, due: Set[tuple[str, str]]) -> None:
        """What need not be done any more is no failure."""
        for key in self._failures.keys() - due:
            self._failures.pop(key).forget()

    def _say(self, kind: EventType, reason: str, text: str) -> None:
        """Say it once: repeating it would tell nothing new."""
        if (reason, text) in self._said:
            return
        self._said.add((reason, text))
        log.log(logging.WARNING if kind == "Warning" else logging.INFO, "%s: %s", reason, text)
        self._event(kind, reason, text)

    def _event(self, kind: EventType, reason: str, text: str) -> None:
        self.events.event(ObjectRef.of_node(self.node_name), kind, reason, text)


def _attachment(row: Judged) -> str:
    """A key for one disk from when it is attached until it is detached."""
    return f"{_identity(row)} {row.disk.sequence or row.disk.device}"


def _named(row: Judged) -> str:
    return f"{row.disk.name} ({_identity(row)}, {quantity(row.disk.size_bytes)})"


def _identity(row: Judged) -> str:
    return written(stable(row.disk.identity))
