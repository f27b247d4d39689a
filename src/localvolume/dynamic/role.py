"""What wakes the dynamic role up, and its look: from facts to a plan, from the plan to acts.

A name never has two acts under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from localvolume.backends.model import PoolReport, Record
from localvolume.config.model import Configuration, Served
from localvolume.config.pools import PoolConfig
from localvolume.dynamic.act import Acts
from localvolume.dynamic.attributes import AttributesClasses
from localvolume.dynamic.called import SERVED, Calls
from localvolume.dynamic.capacityrole import CapacityRole
from localvolume.dynamic.classes.parameters import facts_of_class
from localvolume.dynamic.executor import Executor
from localvolume.dynamic.inline import Pods, pods_of, with_mounts
from localvolume.dynamic.metrics import DynamicMetrics
from localvolume.dynamic.model import ClassFacts, Facts, Hold, Plan, Pool, Told
from localvolume.dynamic.origins import Origins
from localvolume.dynamic.paces import DynamicPaces
from localvolume.dynamic.patterns import unmatched
from localvolume.dynamic.plan.attributes import classes_to_ask
from localvolume.dynamic.plan.capacity import CapacityFacts, ClassCapacity
from localvolume.dynamic.plan.inability import inabilities
from localvolume.dynamic.plan.orphans import orphans_of
from localvolume.dynamic.plan.paths import is_surely_elsewhere
from localvolume.dynamic.plan.plan import plan
from localvolume.dynamic.plan.undoing import marks_of
from localvolume.dynamic.pools import Pools
from localvolume.dynamic.preconditions import Live
from localvolume.dynamic.throttling.act import Throttle
from localvolume.host.process.workers import UNREADABLE, Hung, Workers
from localvolume.kube.client import Client
from localvolume.kube.correlate import ObjectRef
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer
from localvolume.kube.objects import Node, PersistentVolume, PersistentVolumeClaim, StorageClass
from localvolume.kube.ownpod import OwnPod
from localvolume.kube.standing import Standing
from localvolume.reconcile.loop import CannotLook, Loop, Rest
from localvolume.volumes import claims, marks
from localvolume.volumes.hostdirs import misplaced
from localvolume.volumes.manifest import PublishingOptions, node_facts
from localvolume.volumes.objects import is_dynamic, record_name_of
from localvolume.volumes.periods import Clock, Moment, Witness

log = logging.getLogger(__name__)


# Says on the Node what pools warn of and what is wrong with them.
#
# A warning is also logged here; a problem is logged by the role.

EVENT_WARNING = "PoolWarning"
"""People must look at a pool before it becomes a problem."""

EVENT_PROBLEM = "PoolProblem"
"""A pool cannot be used, or not by all classes that should."""

EVENT_WARNING_OVER = "PoolWarningOver"
EVENT_PROBLEM_OVER = "PoolProblemOver"
"""What the Event of that name without `Over` said of this pool is not so any more."""


class Alerts:
    """Told of every look; a warning that was gone and comes back is said again."""

    def __init__(self, events: EventRecorder, node_name: str) -> None:
        self._say = partial(events.event, ObjectRef.of_node(node_name))
        self._warnings: dict[str, Standing] = {}
        self._problems: dict[str, Standing] = {}

    def tell(self, pools: Sequence[Pool]) -> None:
        """Say what is new. A pool that cannot be looked at keeps what was said of it."""
        for name in self._warnings.keys() - {pool.config.name for pool in pools}:
            self._warnings.pop(name).forget()
        for pool in pools:
            name, report = pool.config.name, pool.report
            if report.problem:
                continue
            if name not in self._warnings:
                self._warnings[name] = Standing(self._say, EVENT_WARNING, EVENT_WARNING_OVER)
            known = self._warnings[name]
            if report.warnings:
                for text in known.stands(*(f"pool {name}: {one}" for one in report.warnings)):
                    log.warning("%s", text)
            elif known.over(f"pool {name}: its warnings are gone"):
                log.info("pool %s: its warnings are gone", name)

    def tell_problems(self, problems: Mapping[str, str]) -> None:
        """Say what is wrong, by the pool's name."""
        for name in self._problems.keys() - problems.keys():
            log.info("pool %s: its problem is gone", name)
            self._problems.pop(name).over(f"pool {name}: its problem is gone")
        for name, text in problems.items():
            if name not in self._problems:
                self._problems[name] = Standing(self._say, EVENT_PROBLEM, EVENT_PROBLEM_OVER)
            self._problems[name].stands(f"pool {name}: {text}")


RESYNC_SECONDS = 60.0
"""How often everything is looked at again: no watch reports that sizes change."""

OWING_SECONDS = 0.5
"""How much rest between looks may be put off: a claim for a copy takes two, as a call after a call
does."""

MOUNTS_SECONDS = 10.0
"""How long the mount table may take to be read."""

PROBLEM_SECONDS = 5.0
"""How soon an unusable pool is looked at again: nothing wakes us when another agent ends."""

EVENT_LIMIT = "VolumeLimitEscaped"
"""A volume holds what its limit does not count."""

_NATIVE = Served(marks.DYNAMIC_PROVISIONER, "native")


def served_by(configuration: Configuration, *, driver: bool) -> dict[str, Served]:
    """The provisioners that are served here, by name; with `driver` our CSI driver too."""
    own = (_NATIVE, SERVED) if driver else (_NATIVE,)
    return {one.provisioner: one for one in (*own, *configuration.served)}


@dataclass(eq=False, kw_only=True)
class DynamicRole:
    """The dynamic volumes of one node, from the claim to the last byte."""

    client: Client
    events: EventRecorder
    workers: Workers
    metrics: DynamicMetrics
    volumes: Informer[PersistentVolume]
    claims: Informer[PersistentVolumeClaim]
    storage_classes: Informer[StorageClass]
    nodes: Informer[Node]
    capacities: CapacityRole
    own_pod: OwnPod
    node_name: str
    configuration: Configuration
    paces: DynamicPaces
    clock: Clock
    on_known: Callable[[], object]
    """Told once the first look has seen the volumes."""
    throttle: Throttle
    """Keeps limits of reading and writing."""
    told: Callable[[], Told] = Told
    """What the contents of snapshots say is here. Call `told_changed` when they change."""
    driver: bool = False
    """Whether this agent serves the CSI driver, and so the claims whose classes name it."""

    def __post_init__(self) -> None:
        self._witness = Witness()
        self._far_apart = False
        self._told = Told()
        self._will_compare = False
        self._pools = Pools(self.workers, self.paces.zeroing, self._misplaced)
        self._live = Live(
            self.client,
            self.node_name,
            self.volumes.apply_own_write,
            self._is_elsewhere,
            self.paces.unwanted,
            self.clock.steady,
        )
        self.calls = Calls(self._pools, self.changed, self.volumes.items)
        self._origins = Origins(self.client, marks.node_key(self.node_name), self.changed)
        self._pods = Pods(self.client, self.clock.steady)
        self._attributes = AttributesClasses(self.client, self.changed)
        self._acts = acts = Acts(
            client=self.client,
            events=self.events,
            pools=self._pools,
            live=self._live,
            metrics=self.metrics,
            node_name=self.node_name,
            options=self._options,
            saw_volume=self.volumes.apply_own_write,
            saw_claim=self.claims.apply_own_write,
            calls=self.calls,
            throttle=self.throttle,
            origins=self._origins,
            pods=self._pods,
            written_now=self._latest,
        )
        self._executor = Executor(acts, wake=self.changed, paces=self.paces)
        self.loop = Loop(
            "volumes made for claims",
            self._look,
            rest=Rest(owing=OWING_SECONDS),
            resync=lambda: RESYNC_SECONDS,
            at_resync=self._executor.say_again,
            unreadable=UNREADABLE,
        )
        self._classes: dict[str, tuple[StorageClass, Served, ClassFacts]] = {}
        self._usage_problems: dict[str, str] = {}
        self._alerts = Alerts(self.events, self.node_name)
        self.pools: Mapping[str, tuple[PoolConfig, PoolReport]] = {}
        """The pools as they were last looked at, by name, for those that report on volumes."""
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> dict[str, str]:
        """What keeps a pool ("": the whole role) from being used; the role is ready if empty."""
        refused = self.capacities.refused
        found = {"": self.loop.problem} if self.loop.problem else self._problems
        return {**found, **({"capacities": refused} if refused else {})}

    # --- what wakes it up ----------------------------------------------------------------------

    def changed(self, *_: object) -> None:
        """An object changed, or an act ended."""
        self.loop.wake()

    def told_changed(self, *_: object) -> None:
        """A content of a snapshot changed: what was removed may be purged once none is of it, and
        what was begun is taken away once none waits for it.

        Each comparison reads all contents, and a list changes them all at once: one follows it.
        """
        if not self._will_compare:
            self._will_compare = True
            asyncio.get_running_loop().call_soon(self._compare_told)

    def _compare_told(self) -> None:
        self._will_compare = False
        told = self.told()
        gone = (self._told.handles.keys() | self._told.coming.keys()) - (
            told.handles.keys() | told.coming.keys()
        )
        if gone or told.unread != self._told.unread:
            self.changed()

    def mounts_changed(self) -> None:
        """A pod may have let go of its volume."""
        self._executor.users_changed()
        self.changed()

    def reconfigure(self, configuration: Configuration) -> None:
        """Use another configuration from the next look on."""
        self.configuration = configuration
        self._executor.say_again()
        self.changed()

    # --- the loop ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Never returns; on cancellation lets acts under way come to an end."""
        try:
            for one in (self.volumes, self.claims, self.storage_classes, self.nodes):
                await one.answered.wait()
                if one.refused is not None:
                    self.loop.problem = f"no claim can be served: {one.refused}"
                await one.synced.wait()
            await self.own_pod.answered.wait()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.capacities.run())
                tasks.create_task(self.loop.run())
        finally:
            await self._executor.stop()
            await self._origins.stop()
            await self._attributes.stop()
            self._pools.close()

    async def check_claim(self, record: Record) -> None:
        """Raises NotNow unless the claim that has the volume may have what is in it."""
        await self._live.claim_may_have(record, self.volumes.items.get(record.name))

    async def _look(self) -> float:
        """Returns in how many seconds to look again. Raises CannotLook, Hung, OSError."""
        self.calls.looking()
        node = node_facts(self.node_name, self.nodes.items.get(self.node_name))
        if isinstance(node, str):
            self.capacities.update(None)
            raise CannotLook(node)
        # The API server's answers count for a short while, and the look may take longer than that.
        (absent, gone, again), pods_over = self._live.unwanted(), self._pods.over()
        configuration = self.configuration
        volumes = self._own_volumes().values()
        configs = await self._pools.expand(configuration.pools, volumes)
        self._pools.configure(configs, self._own_volumes().values())
        # An action that ends while the pools are looked at is neither in the report nor under way
        # afterwards. It counts as under way for this look; its end wakes the next one.
        busy, promised = set(self._executor.busy), self._promised()
        pools = await self._pools.look()
        self.pools = {pool.config.name: (pool.config, pool.report) for pool in pools}
        served = served_by(configuration, driver=self.driver)
        classes, foreign = self._read_classes(served)
        with_own = pods_of(one for pool in pools for one in pool.report.records.values())
        now = self._now()
        self._told = self.told()
        facts = Facts(
            node=node,
            provisioners=frozenset(served),
            classes=classes,
            refusals={name: one.refusals for name, one in served.items()}
            | unmatched(configuration.pools, configs, self._pools.unexpanded),
            foreign_classes=foreign,
            pools=pools,
            claims=dict(self.claims.items),
            volumes=self._own_volumes(),
            gone=gone,
            absent=absent,
            named=self._live.named(),
            origins=self._origins.look(self._waiting_for_copies()),
            attributes=self._attributes.look(self._waiting_for_attributes(pools)),
            no_limits=self.throttle.why_not,
            told=self._told,
            calls=self.calls.waiting(),
            pods_with_mounts=await self._with_mounts(with_own),
            pods_over=pods_over,
            promised=list({**promised, **self._promised()}.values()),
            busy=busy | set(self._executor.busy),
            warned=self._executor.warned,
            now=now,
            witnessed=self._witness.look(
                marks_of(self._own_volumes().values()), now, self.clock.steady()
            ),
        )
        is_first = not self.calls.known
        self.calls.seen(facts)
        if is_first:
            self.on_known()
        made = plan(facts)
        unable = self._tell(pools, facts)
        capacities = [
            ClassCapacity(
                name,
                classes[name].object.provisioner,
                capacity,
                made.unfit[name],
                largest=made.largest[name],
                pools=tuple(sorted(made.sizes[name].items())),
            )
            for name, capacity in made.capacity.items()
        ]
        if not any(pool.report.taken for pool in pools):
            # Otherwise the other agent publishes, and the two would overwrite each other.
            self.capacities.update(CapacityFacts(node, capacities))
        self._executor.begin(made, facts)
        # After it: who reads in another thread that there was a look, or that something is held,
        # finds what was said of it.
        self._measure(pools, facts, made, unable)
        waits = [action.again_seconds for action in made.actions if isinstance(action, Hold)]
        if self._pools.unexpanded or any(pool.report.problem for pool in pools):
            waits.append(PROBLEM_SECONDS)
        return min([wait for wait in (*waits, again) if wait], default=0.0)

    async def _with_mounts(self, uids: Collection[str]) -> Collection[str]:
        """Those pods with volumes of their own that have something mounted, or may have."""
        if not uids:
            return ()
        try:
            return await self.workers.call("mounts of pods", MOUNTS_SECONDS, with_mounts, uids)
        except (Hung, OSError, ValueError) as error:
            log.warning("it is not known which pods have volumes mounted: %s", error)
            return uids

    def _misplaced(self, pool: PoolConfig) -> str | None:
        return misplaced(self.own_pod.pod, pool.host_dir, pool.mount_dir)

    def _now(self) -> Moment:
        """Now, by this node's clock and the API server's; warns if they are far apart."""
        now = Moment(self.clock.day(), self.client.clock.earliest())
        if now.far_apart and not self._far_apart:
            log.warning(
                "the clocks of this node and of the API server are far apart:"
                " neither ends the time in which a removal can be undone"
            )
        self._far_apart = now.far_apart
        return now

    def _latest(self) -> float:
        """The latest that it can be now: by no clock does a period from then on end too early."""
        here, server = self.clock.day(), self.client.clock.latest()
        return here if server is None else max(here, server)

    def _promised(self) -> dict[str, tuple[str, Record]]:
        """What is being made or grown, with the name of its pool, by the volume's name."""
        return {record.name: (pool, record) for pool, record in self._executor.promised()}

    def _is_elsewhere(self, volume: PersistentVolume) -> bool:
        """Whether it surely lies on another node."""
        node = node_facts(self.node_name, self.nodes.items.get(self.node_name))
        ids = {report.id for _, report in self.pools.values()}
        return not isinstance(node, str) and is_surely_elsewhere(volume, node, ids)

    def _waiting_for_copies(self) -> list[PersistentVolumeClaim]:
        """The claims here that ask for content, and have no volume yet."""
        return [
            claim
            for claim in self.claims.items.values()
            if self.driver and not claim.spec.volume_name and claims.is_copy(claim)
        ]

    def _waiting_for_attributes(self, pools: Sequence[Pool]) -> frozenset[str]:
        """The VolumeAttributesClasses that claims here ask for."""
        if not self.driver:
            return frozenset()
        records = {name: one for pool in pools for name, one in pool.report.records.items()}
        return classes_to_ask(self.claims.items.values(), self._own_volumes(), records)

    def _own_volumes(self) -> dict[str, PersistentVolume]:
        return {name: one for name, one in self.volumes.items.items() if is_dynamic(one)}

    def _read_classes(
        self, served: Mapping[str, Served]
    ) -> tuple[dict[str, ClassFacts], frozenset[str]]:
        """The classes of our provisioners with what they ask for, and the names of the others."""
        ours: dict[str, ClassFacts] = {}
        for name, found in self.storage_classes.items.items():
            one = served.get(found.provisioner)
            if one is None:
                continue
            known = self._classes.get(name)
            if known is None or known[0] is not found or known[1] != one:
                self._classes[name] = (found, one, facts_of_class(found, one))
            ours[name] = self._classes[name][2]
        for name in self._classes.keys() - ours.keys():
            del self._classes[name]
        return ours, frozenset(self.storage_classes.items.keys() - ours.keys())

    def _options(self) -> PublishingOptions:
        return PublishingOptions(
            node_labels=self.configuration.node_labels_for_pv,
            labels=self.configuration.labels_for_pv,
        )

    def _tell(self, pools: list[Pool], facts: Facts) -> Mapping[str, str]:
        """Say what is wrong with pools and classes; returns which pools cannot do what is asked."""
        unable = inabilities(pools, facts.classes.values())
        wrong = {
            pool.config.name: pool.report.problem
            for pool in pools
            # Another agent's turn is nobody's fault, and ends by itself.
            if pool.report.problem and not pool.report.taken
        } | dict(unable)
        self._alerts.tell_problems(wrong)
        wrong |= {pool.config.name: pool.report.problem for pool in pools if pool.report.taken}
        problems = {f"pool {name}": text for name, text in wrong.items()}
        for name, text in problems.items():
            if self._problems.get(name) != text:
                log.error("%s: %s", name, text)
        problems |= {f"pool {name}": text for name, text in self._pools.unexpanded.items()}
        for class_facts in facts.classes.values():
            if class_facts.problem:
                problems[f"class {class_facts.name}"] = class_facts.problem
        self._problems = problems
        self._alerts.tell(pools)
        self._tell_of_usage(pools, facts)
        return unable

    def _measure(
        self, pools: list[Pool], facts: Facts, made: Plan, unable: Mapping[str, str]
    ) -> None:
        by_record = {record_name_of(one): one for one in facts.volumes.values()}
        orphans = orphans_of(pools, by_record, facts.claims.values())
        self.metrics.tell(pools, orphans, made.actions, unable)

    def _tell_of_usage(self, pools: list[Pool], facts: Facts) -> None:
        """Say once, on the volume, what its tenant does that the volume's limit does not cover."""
        wrong = {
            name: usage.problem
            for pool in pools
            for name, usage in pool.report.usage.items()
            if usage.problem and name in facts.volumes
        }
        for name, problem in wrong.items():
            if self._usage_problems.get(name) != problem:
                log.warning("%s: %s", name, problem)
                self._acts.say_of_volume(facts.volumes[name], "Warning", EVENT_LIMIT, problem)
        self._usage_problems = wrong
