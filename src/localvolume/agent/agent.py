"""The node process: the informers, the host's watchers and the roles, wired together.

It decides nothing. If any part fails for good, the process ends and is started again: all state is
in the API server and on the disks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from localvolume.agent.confined import Confined
from localvolume.agent.metrics import AgentMetrics
from localvolume.agent.options import AgentOptions
from localvolume.agent.reload import Reload
from localvolume.agent.roles import Roles, begin_static
from localvolume.agent.shared import Shared, Wakes, selector_of
from localvolume.config.model import Configuration
from localvolume.config.sources import loader
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
from localvolume.static.metrics import StaticMetrics
from localvolume.static.role import StaticRole

log = logging.getLogger(__name__)

COMPONENT = "local-volume-provisioner"

_LAST_WORDS_SECONDS = 2.0
"""How long the process, when it ends, waits for Events that are not written yet."""

REQUESTS = 6
"""How many requests may be in flight: each takes a TLS connection of 90 kB, and six are enough."""


class Agent:
    """One node's agent. `await run()` returns when cancelled, after cleanings have stopped."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._paces = options.paces
        self._metrics = AgentMetrics()
        self._static_metrics = StaticMetrics(self._metrics.registry)
        self._workers = Workers()
        self._metrics.watch_workers(self._workers)
        self._wakes = Wakes()
        self._shared: Shared | None = None
        self._directories: DirectoryWatcher | None = None
        self._confined: Confined | None = None

    async def run(self) -> None:
        """Raises AccessInvalid if the API server cannot be reached as configured, OSError if the
        address for metrics is taken or there is no certificate for it."""
        options = self._options
        secured = None
        if options.metrics_certificate is not None:
            secured = Secured(
                options.metrics_certificate, options.kubeconfig, self._metrics.request
            )
        serves = serving(
            options.listen_address,
            options.metrics_path,
            self._metrics.registry,
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
                    on_request=self._metrics.request,
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
        reload = Reload(
            options.config_directory,
            options.config_sync_period,
            self._metrics,
            lambda type_, reason, text: events.event(node, type_, reason, text),
            loader(options.others, options.node_name, has_image=options.job_image is not None),
            also=options.others.directories,
        )
        # inotify does not report mounts: one may have covered a watched directory.
        for wake in (self._wakes.mounts, self._wakes.resync):
            wake += [self._watch_again, reload.refresh]
        async with events.speaking(_LAST_WORDS_SECONDS), asyncio.TaskGroup() as tasks:
            tasks.create_task(give_back_once_started())
            mounts = MountWatcher(self._wakes.mounts)
            mounts.start()
            if options.confined:
                self._confined = Confined(client)
                tasks.create_task(self._confined.run())
            tasks.create_task(reload.run())
            own_pod = OwnPod(client, options.namespace, options.pod_name)
            tasks.create_task(own_pod.run(self._wakes.pod))
            configuration = await reload.first()
            self._shared = shared = self._share(client, events, own_pod)
            role = begin_static(shared, tasks, configuration, self._static_metrics)
            self._metrics.watch_workers(self._workers, role.cleaners, role.readers)
            roles = Roles(shared, tasks)
            for informer in (shared.volumes, shared.storage_classes, shared.nodes):
                tasks.create_task(informer.run())
            uevents = UeventListener(self._device_changed)
            uevents.start()

            def configure(configuration: Configuration) -> None:
                self._watch_directories(tasks, role, configuration)
                roles.configure(configuration)

            def reconfigure(configuration: Configuration) -> None:
                role.reconfigure(configuration)
                configure(configuration)

            configure(configuration)
            reload.on_change(reconfigure)
            if options.discovery_period:
                tasks.create_task(self._look_every(options.discovery_period, role))
            try:
                await role.run()
            finally:
                mounts.close()
                uevents.close()

    def _share(self, client: Client, events: EventRecorder, own_pod: OwnPod) -> Shared:
        """Make what the roles share; its informers are limited to what this node needs."""
        options, wakes = self._options, self._wakes
        own = selector_of(options.node_name)
        return Shared(
            options=options,
            client=client,
            events=events,
            workers=self._workers,
            registry=self._metrics.registry,
            volumes=Informer(
                client, PERSISTENT_VOLUMES, label_selector=own, on_change=wakes.volumes
            ),
            storage_classes=Informer(client, STORAGE_CLASSES, on_change=wakes.classes),
            nodes=Informer(
                client,
                NODES,
                field_selector=f"metadata.name={options.node_name}",
                on_change=wakes.node,
            ),
            own_pod=own_pod,
            wakes=wakes,
        )

    # --- wake-ups ------------------------------------------------------------------------------

    def _watch_again(self) -> None:
        if self._directories:
            self._directories.refresh()

    def _device_changed(self, action: str, properties: dict[str, str]) -> None:
        if action == OVERFLOW or "MAJOR" not in properties:
            self._wakes.devices(None)
        else:
            self._wakes.devices(f"{properties['MAJOR']}:{properties['MINOR']}")

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
        """Look at the directories periodically until they can be watched or are replaced."""
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

    async def _look_every(self, seconds: float, role: StaticRole) -> None:
        while True:
            await asyncio.sleep(seconds)
            role.look_at_everything()
            self._wakes.resync()

    # --- health --------------------------------------------------------------------------------

    def _not_ready(self) -> dict[str, str]:
        shared = self._shared
        if shared is None:
            return {"": "there is no valid configuration, or the API server does not answer"}
        found: dict[str, str] = {}
        for problems in shared.problems:
            found |= problems()
        if self._confined is not None and self._confined.problem:
            found["confinement"] = self._confined.problem
        if shared.own_pod.problem:
            found["pod"] = shared.own_pod.problem
        return found

    def _not_healthy(self) -> dict[str, str]:
        stuck, loops = self._paces.stuck, self._shared.loops if self._shared else {}
        return {
            name: f"a look at the node has been stuck for {stuck:.0f} s"
            for name, loop in loops.items()
            if loop.stuck(stuck)
        }
