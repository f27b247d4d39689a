"""The node process: the informers, the host's watchers and the roles, wired together.

Nothing is decided here. Whatever of this fails for good ends the process, which begins anew: all
state is in the API server and on the disks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from localvolume.agent.endpoints import Endpoints
from localvolume.agent.reload import Reload
from localvolume.agent.telemetry import ProcessTelemetry
from localvolume.config.environment import DEFAULT_METRICS_PATH, ListenAddress
from localvolume.config.model import Configuration
from localvolume.host.inotify import DirectoryWatcher
from localvolume.host.mounts import MountWatcher
from localvolume.host.uevents import OVERFLOW, UeventListener
from localvolume.host.workers import Workers
from localvolume.kube.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import NODES, PERSISTENT_VOLUMES, STORAGE_CLASSES
from localvolume.static.role import GRACE_SECONDS, StaticRole
from localvolume.static.telemetry import Telemetry
from localvolume.volumes import marks

log = logging.getLogger(__name__)

STUCK_SECONDS = 120.0
"""A look at the node that takes longer than this is stuck: the process asks to be restarted."""

COMPONENT = "local-volume-provisioner"

REQUESTS = 6
"""How many requests may be in flight: each is a TLS connection of 90 kB, and six keep us busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """What the DaemonSet tells its agent; periods and times in seconds."""

    node_name: str
    config_directory: str = "/etc/provisioner/config"
    kubeconfig: str | None = None
    listen_address: ListenAddress | None = None
    metrics_path: str = DEFAULT_METRICS_PATH
    discovery_period: float | None = None
    config_sync_period: float | None = None
    vanished_grace: float = GRACE_SECONDS


class Agent:
    """One node's agent. `await run()` returns when cancelled, after cleanings came to a stop."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._process = ProcessTelemetry()
        self._telemetry = Telemetry(self._process.registry)
        self._workers = Workers()
        self._process.watch_workers(self._workers)
        self._role: StaticRole | None = None
        self._directories: DirectoryWatcher | None = None
        self._reload: Reload | None = None

    async def run(self) -> None:
        """Raises AccessInvalid where the API server cannot be reached as configured, OSError where
        the address for metrics is taken."""
        options = self._options
        endpoints = None
        if options.listen_address is not None:
            endpoints = Endpoints(
                options.listen_address,
                options.metrics_path,
                self._process.registry,
                ready=self._not_ready,
                healthy=self._not_healthy,
            )
            await endpoints.start()
        try:
            access = find_access(options.kubeconfig)
            async with Client(
                access,
                user_agent=COMPONENT,
                concurrency=REQUESTS,
                on_request=self._process.request,
            ) as client:
                await self._serve(client)
        finally:
            if self._directories:
                self._directories.close()
            self._workers.close()
            if endpoints is not None:
                await endpoints.close()

    async def _serve(self, client: Client) -> None:
        options = self._options
        events = EventRecorder(client, COMPONENT, options.node_name)
        node = ObjectRef("Node", options.node_name, options.node_name)
        self._reload = reload = Reload(
            options.config_directory,
            options.config_sync_period,
            self._process,
            lambda type_, reason, text: events.event(node, type_, reason, text),
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(events.run())
                mounts = MountWatcher(self._mounts_changed)
                mounts.start()
                tasks.create_task(reload.run())
                configuration = await reload.first()
                self._role = role = self._make_role(client, events, tasks, configuration)
                uevents = UeventListener(self._device_changed)
                uevents.start()
                self._watch_directories(role, configuration)

                def reconfigure(configuration: Configuration) -> None:
                    role.reconfigure(configuration)
                    self._watch_directories(role, configuration)

                reload.on_change(reconfigure)
                if options.discovery_period:
                    tasks.create_task(self._look_every(options.discovery_period))
                try:
                    await role.run()
                finally:
                    mounts.close()
                    uevents.close()
        finally:
            await events.flush(2.0)

    def _make_role(
        self,
        client: Client,
        events: EventRecorder,
        tasks: asyncio.TaskGroup,
        configuration: Configuration,
    ) -> StaticRole:
        """The role and the informers that feed it, each limited to what this node needs."""
        role: StaticRole | None = None

        def changed(*_: object) -> None:
            if role is not None:
                role.objects_changed()

        own = f"{marks.NODE_LABEL}={marks.node_key(self._options.node_name)}"
        volumes = Informer(client, PERSISTENT_VOLUMES, label_selector=own, on_change=changed)
        classes = Informer(client, STORAGE_CLASSES, on_change=changed)
        nodes = Informer(
            client,
            NODES,
            field_selector=f"metadata.name={self._options.node_name}",
            on_change=changed,
        )
        role = StaticRole(
            client=client,
            events=events,
            workers=self._workers,
            telemetry=self._telemetry,
            volumes=volumes,
            storage_classes=classes,
            nodes=nodes,
            node_name=self._options.node_name,
            configuration=configuration,
            grace_seconds=self._options.vanished_grace,
            on_resync=self._watch_again,
        )
        for informer in (volumes, classes, nodes):
            tasks.create_task(informer.run())
        self._process.watch_workers(self._workers, role.cleaners)
        return role

    # --- wake-ups ------------------------------------------------------------------------------

    def _mounts_changed(self) -> None:
        if self._role:
            self._role.mounts_changed()
        self._watch_again()

    def _watch_again(self) -> None:
        # inotify is blind to mounts: what its watches lead to may have been covered.
        if self._directories:
            self._directories.refresh()
        if self._reload:
            self._reload.refresh()

    def _device_changed(self, action: str, properties: dict[str, str]) -> None:
        if self._role is None:
            return
        if action == OVERFLOW or "MAJOR" not in properties:
            self._role.device_changed(None)
        else:
            self._role.device_changed(f"{properties['MAJOR']}:{properties['MINOR']}")

    def _watch_directories(self, role: StaticRole, configuration: Configuration) -> None:
        if self._directories:
            self._directories.close()
        self._directories = DirectoryWatcher(
            {config.mount_dir for config in configuration.storage_classes.values()},
            role.directory_changed,
            workers=self._workers,
        )
        self._directories.start()

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
        return dict(self._role.problems)

    def _not_healthy(self) -> dict[str, str]:
        since = self._role.looking_since if self._role else None
        if since is not None and time.monotonic() - since > STUCK_SECONDS:
            return {"discovery": f"a look at the node has been stuck for {STUCK_SECONDS:.0f} s"}
        return {}
