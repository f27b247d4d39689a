"""The node process: the informers, the host's watchers and the roles, wired together.

Nothing is decided here. Whatever of this fails for good ends the process, which begins anew: all
state is in the API server and on the disks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localvolume.agent.confined import Confined
from localvolume.agent.deeds import Deeds
from localvolume.agent.paces import Paces
from localvolume.agent.reload import Reload
from localvolume.agent.shared import Shared
from localvolume.agent.telemetry import ProcessTelemetry
from localvolume.config.environment import DEFAULT_METRICS_PATH, DEFAULT_NAMESPACE, ListenAddress
from localvolume.config.model import Configuration
from localvolume.config.sources import Others, loader
from localvolume.health.model import Patience
from localvolume.health.role import HealthRole
from localvolume.health.telemetry import HealthTelemetry
from localvolume.host.block.uevents import OVERFLOW, UeventListener
from localvolume.host.inotify import DirectoryWatcher
from localvolume.host.mount.mounts import MountWatcher
from localvolume.host.process.workers import Workers
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import NODES, PERSISTENT_VOLUMES, STORAGE_CLASSES
from localvolume.kube.ownpod import OwnPod
from localvolume.process.endpoints import serving
from localvolume.process.guard import Secured
from localvolume.process.memory import give_back_once_started
from localvolume.static.jobs.watch import JobWatch
from localvolume.static.role import GRACE_SECONDS, StaticRole
from localvolume.static.telemetry import Telemetry
from localvolume.volumes import marks
from localvolume.volumes.periods import Clock

if TYPE_CHECKING:
    from localvolume.agent.taint import NotReadyTaint
    from localvolume.disks.role import DisksRole
    from localvolume.dynamic.role import DynamicRole
    from localvolume.flexvolume.role import FlexRole

log = logging.getLogger(__name__)

COMPONENT = "local-volume-provisioner"

_LAST_WORDS_SECONDS = 2.0
"""How long the end of the process waits for Events that are not written yet."""

REQUESTS = 6
"""How many requests may be in flight: each is a TLS connection of 90 kB, and six keep us busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """What the DaemonSet tells its agent; periods and times in seconds.

    Cleaning Jobs run in `namespace`; `job_image` None: there can be none. `pod_name` is that of the
    agent's own pod there; "" where it has none.
    """

    node_name: str
    namespace: str = DEFAULT_NAMESPACE
    pod_name: str = ""
    job_image: str | None = None
    confined: bool = False
    """Whether it must be refused what is not its node's, before it is ready."""
    config_directory: str = "/etc/provisioner/config"
    kubeconfig: str | None = None
    listen_address: ListenAddress | None = None
    metrics_path: str = DEFAULT_METRICS_PATH
    metrics_certificate: str | None = None
    """The directory of the certificate for TLS; None: none, and everyone reads the metrics."""
    claims_in_metrics: bool = False
    discovery_period: float | None = None
    config_sync_period: float | None = None
    vanished_grace: float = GRACE_SECONDS
    kubelet_directory: str | None = None
    """Where the kubelet mounts volumes for pods; None: it does not, on this machine."""
    records_directory: str | None = None
    """Where the records lie of what can carry none itself; None: nowhere."""
    patience: Patience = field(default_factory=Patience)
    """How long what is wrong with a volume must last before it is said."""
    others: Others = field(default_factory=Others)
    """The provisioners for claims whose places are taken."""
    paces: Paces = field(default_factory=Paces)
    deeds: Deeds = field(default_factory=Deeds)
    clock: Clock = field(default_factory=Clock)
    """By which periods are counted that end with a removal."""


class Agent:
    """One node's agent. `await run()` returns when cancelled, after cleanings came to a stop."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._paces = options.paces
        self._process = ProcessTelemetry()
        self._telemetry = Telemetry(self._process.registry)
        self._workers = Workers()
        self._process.watch_workers(self._workers)
        self._role: StaticRole | None = None
        self._directories: DirectoryWatcher | None = None
        self._reload: Reload | None = None
        self._taint: NotReadyTaint | None = None
        self._shared: Shared | None = None
        self._dynamic: DynamicRole | None = None
        self._flexvolume: FlexRole | None = None
        self._health: HealthRole | None = None
        self._disks: DisksRole | None = None
        self._confined: Confined | None = None
        self._own_pod: OwnPod | None = None

    async def run(self) -> None:
        """Raises AccessInvalid where the API server cannot be reached as configured, OSError where
        the address for metrics is taken, or there is no certificate for it."""
        options = self._options
        secured = None
        if options.metrics_certificate is not None:
            secured = Secured(
                options.metrics_certificate, options.kubeconfig, self._process.request
            )
        serves = serving(
            options.listen_address,
            options.metrics_path,
            self._process.registry,
            ready=self._not_ready,
            healthy=self._not_healthy,
            secured=secured,
        )
        async with serves:
            try:
                access = find_access(options.kubeconfig)
                async with Client(
                    access,
                    user_agent=COMPONENT,
                    concurrency=REQUESTS,
                    on_request=self._process.request,
                    watch_seconds=self._paces.watch,
                    watch_grace=self._paces.watch_grace,
                ) as client:
                    await self._serve(client)
            finally:
                if self._directories:
                    self._directories.close()
                self._workers.close()

    async def _serve(self, client: Client) -> None:
        options = self._options
        events = EventRecorder(client, COMPONENT, options.node_name)
        node = ObjectRef.of_node(options.node_name)
        self._reload = reload = Reload(
            options.config_directory,
            options.config_sync_period,
            self._process,
            lambda type_, reason, text: events.event(node, type_, reason, text),
            loader(options.others, options.node_name, has_image=options.job_image is not None),
            also=options.others.directories,
        )
        async with events.speaking(_LAST_WORDS_SECONDS), asyncio.TaskGroup() as tasks:
            tasks.create_task(give_back_once_started())
            mounts = MountWatcher(self._mounts_changed)
            mounts.start()
            if options.confined:
                self._confined = Confined(client)
                tasks.create_task(self._confined.run())
            tasks.create_task(reload.run())
            self._own_pod = OwnPod(client, options.namespace, options.pod_name)
            tasks.create_task(self._own_pod.run(self._pod_known))
            configuration = await reload.first()
            self._role = role = self._make_role(client, events, tasks, configuration, self._own_pod)
            uevents = UeventListener(self._device_changed)
            uevents.start()
            self._watch_directories(tasks, role, configuration)

            def reconfigure(configuration: Configuration) -> None:
                role.reconfigure(configuration)
                self._watch_directories(tasks, role, configuration)
                self._remove_taint(tasks, configuration)
                self._make_volumes(tasks, configuration)
                self._serve_flexvolume(tasks, configuration)
                self._format_disks(tasks, configuration)
                if self._health:
                    self._health.reconfigure(configuration)

            self._remove_taint(tasks, configuration)
            self._make_volumes(tasks, configuration)
            self._serve_flexvolume(tasks, configuration)
            self._format_disks(tasks, configuration)
            reload.on_change(reconfigure)
            if options.discovery_period:
                tasks.create_task(self._look_every(options.discovery_period))
            try:
                await role.run()
            finally:
                mounts.close()
                uevents.close()

    def _make_role(
        self,
        client: Client,
        events: EventRecorder,
        tasks: asyncio.TaskGroup,
        configuration: Configuration,
        own_pod: OwnPod,
    ) -> StaticRole:
        """The role and the informers that feed it, each limited to what this node needs."""
        role: StaticRole | None = None

        def changed(*_: object) -> None:
            if role is not None:
                role.objects_changed()
            if self._dynamic is not None:
                self._dynamic.changed()
            if self._flexvolume is not None:
                self._flexvolume.changed()

        def volumes_changed(*_: object) -> None:
            changed()
            if self._health is not None:
                self._health.changed()

        def node_changed(*_: object) -> None:
            changed()
            if self._taint:
                self._taint.node_changed()

        own = f"{marks.NODE_LABEL}={marks.node_key(self._options.node_name)}"
        volumes = Informer(
            client, PERSISTENT_VOLUMES, label_selector=own, on_change=volumes_changed
        )
        classes = Informer(client, STORAGE_CLASSES, on_change=changed)
        nodes = Informer(
            client,
            NODES,
            field_selector=f"metadata.name={self._options.node_name}",
            on_change=node_changed,
        )
        jobs = JobWatch(
            client,
            self._options.namespace,
            self._options.node_name,
            changed,
            self._paces.static.jobs_again,
        )
        jobs.needed = configuration.use_job_for_cleaning
        role = StaticRole(
            client=client,
            events=events,
            workers=self._workers,
            telemetry=self._telemetry,
            volumes=volumes,
            storage_classes=classes,
            nodes=nodes,
            jobs=jobs,
            own_pod=own_pod,
            node_name=self._options.node_name,
            job_image=self._options.job_image,
            configuration=configuration,
            kubelet_directory=self._options.kubelet_directory,
            records_directory=self._options.records_directory,
            grace_seconds=self._options.vanished_grace,
            paces=self._paces.static,
            clean=self._options.deeds.clean,
            on_resync=self._watch_again,
        )
        for task in (volumes, classes, nodes, jobs):
            tasks.create_task(task.run())
        self._shared = Shared(
            client=client,
            events=events,
            workers=self._workers,
            registry=self._process.registry,
            claims_in_metrics=self._options.claims_in_metrics,
            volumes=volumes,
            storage_classes=classes,
            nodes=nodes,
            own_pod=own_pod,
            node_name=self._options.node_name,
            namespace=self._options.namespace,
            paces=self._paces,
            clock=self._options.clock,
        )
        self._process.watch_workers(self._workers, role.cleaners, role.readers)
        self._health = self._tell_health(self._shared, configuration)
        tasks.create_task(self._health.run())
        return role

    def _tell_health(self, shared: Shared, configuration: Configuration) -> HealthRole:
        """The role that tells how all the volumes are, whichever other role they belong to."""
        return HealthRole(
            client=shared.client,
            events=shared.events,
            workers=shared.workers,
            telemetry=HealthTelemetry(shared.registry, claims=shared.claims_in_metrics),
            volumes=shared.volumes,
            pools=lambda: self._dynamic.pools if self._dynamic else {},
            own_pod=shared.own_pod,
            configuration=configuration,
            patience=self._options.patience,
        )

    def _remove_taint(self, tasks: asyncio.TaskGroup, configuration: Configuration) -> None:
        """See to the Node's taint, from the first configuration that wants it removed."""
        if self._taint is not None:
            self._taint.reconfigure(configuration)
        elif self._shared and self._role and configuration.remove_node_not_ready_taint:
            # Imported now: an agent whose Node has no such taint need not carry it.
            from localvolume.agent.taint import NotReadyTaint

            self._taint = NotReadyTaint(
                client=self._shared.client,
                events=self._shared.events,
                nodes=self._shared.nodes.items,
                node_name=self._shared.node_name,
                complete=self._role.complete,
                look=self._role.objects_changed,
                configuration=configuration,
                first_wait=self._paces.taint_first_wait,
                longest_wait=self._paces.taint_longest_wait,
            )
            tasks.create_task(self._taint.run())

    def _make_volumes(self, tasks: asyncio.TaskGroup, configuration: Configuration) -> None:
        """Serve claims, from the first pool on."""
        if self._dynamic is not None:
            self._dynamic.reconfigure(configuration)
        elif self._shared and (configuration.pools or configuration.served):
            # Imported now: an agent without pools need not carry it.
            from localvolume.agent import dynamic

            self._dynamic = dynamic.begin(self._shared, tasks, configuration)
            tasks.create_task(self._dynamic.run())

    def _serve_flexvolume(self, tasks: asyncio.TaskGroup, configuration: Configuration) -> None:
        """Serve the driver's client, from the first configuration that has it on."""
        if self._flexvolume is not None:
            self._flexvolume.reconfigure(configuration)
        elif self._shared and configuration.flexvolume is not None:
            # Imported now: an agent without FlexVolume need not carry it.
            from localvolume.agent import flexvolume

            self._flexvolume = flexvolume.begin(self._shared, tasks, configuration)
            tasks.create_task(self._flexvolume.run())

    def _format_disks(self, tasks: asyncio.TaskGroup, configuration: Configuration) -> None:
        """Make volumes of raw disks, from the first configuration that has filters on."""
        if self._disks is not None:
            self._disks.reconfigure(configuration)
        elif self._shared and configuration.disks is not None:
            # Imported now: an agent that formats nothing need not carry it.
            from localvolume.agent import disks

            self._disks = disks.begin(self._shared, configuration, self._options.deeds)
            tasks.create_task(self._disks.run())

    # --- wake-ups ------------------------------------------------------------------------------

    def _pod_known(self) -> None:
        """What is mounted where is known, perhaps late: it may be another than was taken for it."""
        if self._role:
            self._role.objects_changed()
        if self._dynamic:
            self._dynamic.changed()
        if self._health:
            self._health.changed()
        if self._disks:
            self._disks.changed()

    def _mounts_changed(self) -> None:
        if self._role:
            self._role.mounts_changed()
        if self._dynamic:
            self._dynamic.mounts_changed()
        if self._health:
            self._health.changed()
        self._watch_again()

    def _watch_again(self) -> None:
        # inotify is blind to mounts: what its watches lead to may have been covered.
        if self._directories:
            self._directories.refresh()
        if self._reload:
            self._reload.refresh()

    def _device_changed(self, action: str, properties: dict[str, str]) -> None:
        if self._health:
            self._health.changed()
        if self._disks:
            self._disks.changed()
        if self._role is None:
            return
        if action == OVERFLOW or "MAJOR" not in properties:
            self._role.device_changed(None)
        else:
            self._role.device_changed(f"{properties['MAJOR']}:{properties['MINOR']}")

    def _watch_directories(
        self, tasks: asyncio.TaskGroup, role: StaticRole, configuration: Configuration
    ) -> None:
        if self._directories:
            self._directories.close()
        paths = {config.mount_dir for config in configuration.storage_classes.values()}
        self._directories = watcher = DirectoryWatcher(
            paths, role.directory_changed, workers=self._workers
        )
        try:
            watcher.start()
        except OSError as error:
            # fs.inotify.max_user_instances is small on many nodes, and shared with the kubelet.
            log.warning(
                "the kernel grants no inotify instance (%s): "
                "the discovery directories are looked at every %g s instead",
                error.strerror,
                self._paces.blind,
            )
            tasks.create_task(self._look_blindly(watcher, paths, role))

    async def _look_blindly(
        self, watcher: DirectoryWatcher, paths: set[str], role: StaticRole
    ) -> None:
        """Look at the directories now and then, until they can be watched or are others."""
        while True:
            await asyncio.sleep(self._paces.blind)
            if self._directories is not watcher:
                return
            with contextlib.suppress(OSError):
                watcher.start()
                log.info("the discovery directories are watched now")
                return
            for path in paths:
                role.directory_changed(path, None)

    async def _look_every(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            if self._role:
                self._role.device_changed(None)
                self._watch_again()

    # --- health --------------------------------------------------------------------------------

    def _not_ready(self) -> dict[str, str]:
        if self._role is None:
            return {"": "there is no valid configuration, or the API server does not answer"}
        found = dict(self._role.problems)
        if self._confined is not None and self._confined.problem:
            found["confinement"] = self._confined.problem
        if self._own_pod is not None and self._own_pod.problem:
            found["pod"] = self._own_pod.problem
        for role in (self._dynamic, self._flexvolume):
            if role is not None:
                found |= role.problems
        return found

    def _not_healthy(self) -> dict[str, str]:
        stuck = self._paces.stuck
        roles = {
            "discovery": self._role,
            "dynamic": self._dynamic,
            "health": self._health,
            "disks": self._disks,
            "flexvolume": self._flexvolume,
        }
        return {
            name: f"a look at the node has been stuck for {stuck:.0f} s"
            for name, role in roles.items()
            if role is not None and role.loop.stuck(stuck)
        }
