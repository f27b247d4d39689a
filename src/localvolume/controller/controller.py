"""The cluster process: caches that are always warm, an election, and the roles while it leads.

Nothing is decided here. A permanent failure of any part ends the process, which is then restarted:
all state is in the API server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from localvolume.config.flags.listening import DEFAULT_METRICS_PATH, ListenAddress
from localvolume.config.variables import MY_NAMESPACE
from localvolume.controller.caches.cluster import Cluster
from localvolume.controller.caches.demand import Demand
from localvolume.controller.claims import Routes
from localvolume.controller.contents import LostContents
from localvolume.controller.drivers import MANIFESTS, keeping
from localvolume.controller.flexvolume import FlexVolumes
from localvolume.controller.leading import Leading, Means, Pace
from localvolume.controller.metrics import ControllerMetrics
from localvolume.controller.model import Policy
from localvolume.controller.volumes.role import Role
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.election.lease import Election, new_identity
from localvolume.kube.errors import ApiError, TellTheAdministrator
from localvolume.kube.events import QUEUE, EventRecorder
from localvolume.kube.kinds import Kind
from localvolume.process.endpoints import serving
from localvolume.process.guard import Secured
from localvolume.process.memory import give_back_once_started
from localvolume.volumes.periods import Clock

log = logging.getLogger(__name__)

COMPONENT: Final = "localvolume-controller"

STUCK_SECONDS: Final = 120.0
"""A leader that has judged nothing for this long, with something waiting, asks for a restart."""

LEAST_REFUSED_SECONDS: Final = 60.0
"""For how long a refused request for the Lease counts at least: an informer that is refused lists
again within 30 s."""

REQUESTS: Final = 32
"""How many may be in flight: labels for claims must not wait for requests about lost nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseOptions:
    """The Lease that elects the leader, and its times in seconds, named as in kube components."""

    name: str = COMPONENT
    namespace: str = MY_NAMESPACE.default
    seconds: float = 15.0
    renew_deadline: float = 10.0
    retry_seconds: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """What the Deployment tells its controller. `listen_address` None: nothing is served."""

    policy: Policy = field(default_factory=Policy)
    pace: Pace = field(default_factory=Pace)
    lease: LeaseOptions = field(default_factory=LeaseOptions)
    clock: Clock = field(default_factory=Clock)
    """Measures for how long nodes have been lost."""
    kubeconfig: str | None = None
    listen_address: ListenAddress | None = None
    metrics_path: str = DEFAULT_METRICS_PATH
    metrics_certificate: str | None = None
    """The directory of the TLS certificate; None: no TLS, and everyone may read the metrics."""
    event_queue_size: int = QUEUE
    """How many Events may wait to be written."""


@dataclass(eq=False)
class LeaseRefusals:
    """Which requests for the Lease are refused: without them nobody ever leads.

    What a candidate needs, it asks for again within `seconds`. What it was refused before that, it
    no longer needs, since the watch brought the Lease, or since another replica took it.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._by_verb: dict[str, tuple[str, float]] = {}

    def answered(self, verb: str, error: ApiError | None) -> None:
        """Take in how a request of that verb ended."""
        if isinstance(error, TellTheAdministrator):
            self._by_verb[verb] = str(error), self.clock()
        elif error is None:
            self._by_verb.pop(verb, None)

    def now(self) -> str:
        """What is refused, "" if nothing is."""
        since = self.clock() - self.seconds
        return "; ".join(text for text, when in self._by_verb.values() if when >= since)


class Controller:
    """One replica. `await run()` returns when cancelled, after the lease was given up."""

    def __init__(self, options: ControllerOptions) -> None:
        self._options = options
        self._metrics = ControllerMetrics()
        self._identity = new_identity()
        self._cluster: Cluster | None = None
        self._demand: Demand | None = None
        self._election: Election | None = None
        self._leading: dict[str, Leading[Any]] = {}
        self._lease_refusals = LeaseRefusals(max(LEAST_REFUSED_SECONDS, 2 * options.lease.seconds))

    async def run(self) -> None:
        """Raises AccessInvalid if the API server cannot be reached as configured, and OSError if
        the address for metrics is taken or has no certificate."""
        options = self._options
        secured = None
        if options.metrics_certificate is not None:
            secured = Secured(
                options.metrics_certificate, options.kubeconfig, self._metrics.request
            )
        async with serving(
            options.listen_address,
            options.metrics_path,
            self._metrics.registry,
            ready=self._not_ready,
            healthy=self._not_healthy,
            says=self._standing,
            secured=secured,
        ):
            await self._serve()

    async def _serve(self) -> None:
        options, lease = self._options, self._options.lease
        access = find_access(options.kubeconfig)
        # The lease has a client of its own: other requests must not delay its renewal.
        async with Client(
            access, user_agent=COMPONENT, on_request=self._lease_request
        ) as election_client:
            self._election = election = Election(
                election_client,
                namespace=lease.namespace,
                name=lease.name,
                identity=self._identity,
                lease_seconds=lease.seconds,
                renew_deadline=lease.renew_deadline,
                retry_seconds=lease.retry_seconds,
            )
            async with Client(
                access,
                user_agent=COMPONENT,
                on_request=self._metrics.request,
                before_write=election.check,
                concurrency=REQUESTS,
            ) as client:
                self._cluster = cluster = Cluster(client)
                self._demand = demand = Demand(client, cluster)
                self._metrics.watch(cluster, demand)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(give_back_once_started())
                    tasks.create_task(cluster.volumes.run())
                    tasks.create_task(cluster.nodes.run())
                    tasks.create_task(demand.claims.run())
                    tasks.create_task(demand.classes.run())
                    tasks.create_task(demand.capacities.run())
                    tasks.create_task(demand.contents.run())
                    await election.run(lambda: self._lead(client, cluster, demand))

    async def _lead(self, client: Client, cluster: Cluster, demand: Demand) -> None:
        events = EventRecorder(
            client, COMPONENT, self._identity, queue_size=self._options.event_queue_size
        )
        means = Means(
            client=client,
            cluster=cluster,
            demand=demand,
            events=events,
            metrics=self._metrics,
            policy=self._options.policy,
            pace=self._options.pace,
            clock=self._options.clock,
        )
        self._leading = {
            "acts": Role(means),
            "routes": Routes(means),
            "flexvolumes": FlexVolumes(means),
        }
        log.info("leading as %s", self._identity)
        self._metrics.leading(True)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(events.run())
                for role in self._leading.values():
                    tasks.create_task(role.run())
                tasks.create_task(LostContents(means).loop.run())
                for manifest in MANIFESTS:
                    tasks.create_task(keeping(client, manifest, self._options.pace.resync).run())
        finally:
            self._leading = {}
            self._metrics.leading(False)
            log.info("not leading any more")

    def _lease_request(
        self, verb: str, kind: Kind[Any], seconds: float, error: ApiError | None
    ) -> None:
        self._metrics.request(verb, kind, seconds, error)
        self._lease_refusals.answered(verb, error)

    # --- health --------------------------------------------------------------------------------

    def _not_ready(self) -> dict[str, str]:
        """A replica that stands by with warm caches is ready."""
        if self._cluster is None or self._demand is None:
            return {"": "it has not begun yet"}
        wrong = self._cluster.problems() | self._demand.problems()
        if refused := self._lease_refusals.now():
            wrong["lease"] = refused
        wrong |= {name: role.refused for name, role in self._leading.items() if role.refused}
        return wrong

    def _standing(self) -> str:
        if self._leading:
            return "ok, leading"
        holder = self._election.holder if self._election else ""
        return f"ok, standing by for {holder}" if holder else "ok, standing by"

    def _not_healthy(self) -> dict[str, str]:
        return {
            name: f"nothing has been judged for {STUCK_SECONDS:.0f} s"
            for name, role in self._leading.items()
            if role.behind > STUCK_SECONDS
        }
