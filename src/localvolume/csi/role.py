"""CSI on one node: the driver's socket, and its registration with the kubelet.

The sockets are looked after: one that somebody removed is made again, one that a newer agent put in
its place is left to that agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from localvolume.config.model import Configuration
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.csi.identity import IdentityService, KnowsNode, is_ready
from localvolume.csi.metrics import CsiMetrics
from localvolume.csi.paces import CsiPaces
from localvolume.csi.registration import RegistrationService
from localvolume.csi.wire.server import Handle, Server
from localvolume.host.inotify import DirectoryWatcher
from localvolume.host.process.workers import Workers
from localvolume.kube.backoff import Backoff
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.standing import Standing
from localvolume.reconcile.loop import Loop

log = logging.getLogger(__name__)

REGISTRATION_FAILED: Final = "CSIRegistrationFailed"
REGISTRATION_FAILED_OVER: Final = "CSIRegistrationFailedOver"

_DIRECTORY_MODE: Final = 0o750
_SOCKETS: Final = "plugins"
_REGISTRATIONS: Final = "plugins_registry"


class Service(Protocol):
    """Answers some RPCs."""

    @property
    def handlers(self) -> Mapping[str, Handle]: ...


@dataclass(eq=False, kw_only=True)
class CsiRole:
    """Serves Identity and the given services. Run `run()` as a task.

    `kubelet_directory` is the kubelet's, at the path that the kubelet itself knows it by.
    """

    volumes: KnowsNode
    services: Iterable[Service]
    events: EventRecorder
    workers: Workers
    metrics: CsiMetrics
    node_name: str
    kubelet_directory: str
    paces: CsiPaces

    def __post_init__(self) -> None:
        self._directory = f"{self.kubelet_directory}/{_SOCKETS}/{CSI_DRIVER}"
        self._registry = f"{self.kubelet_directory}/{_REGISTRATIONS}"
        endpoint = f"{self._directory}/csi.sock"
        handlers: dict[str, Handle] = {}
        for service in (IdentityService(self.volumes), *self.services):
            handlers |= service.handlers
        self._server = Server(endpoint, handlers, self._counted)
        self._registration = Server(
            f"{self._registry}/{CSI_DRIVER}-reg.sock",
            RegistrationService(endpoint, self._told).handlers,
            lambda *_: None,
        )
        self._watcher = DirectoryWatcher(
            (self._directory, self._registry), self._changed, workers=self.workers
        )
        self._backoff = Backoff(self.paces.first_wait, self.paces.longest_wait, spread=0.5)
        self._renew_at = math.inf
        """When the kubelet, which refused the driver, is asked again (the loop's time)."""
        self._problems: dict[str, str] = {}
        say = partial(self.events.event, ObjectRef.of_node(self.node_name))
        self._refusal = Standing(say, REGISTRATION_FAILED, REGISTRATION_FAILED_OVER)
        self.loop = Loop(
            "csi", self._look, resync=lambda: self.paces.resync, at_resync=self._watcher.refresh
        )

    @property
    def problems(self) -> dict[str, str]:
        """What keeps the driver from being served; the role is ready if empty.

        It is no problem that the kubelet has not asked yet: it may not run.
        """
        looking = {"csi": self.loop.problem} if self.loop.problem else {}
        return self._problems | looking

    def changed(self, *_: object) -> None:
        """The node's object, or something else that the driver waits for, changed."""
        self.loop.wake()

    def reconfigure(self, configuration: Configuration) -> None:
        """The driver serves whatever pools there are: nothing of it is configured."""

    async def run(self) -> None:
        """Never returns; on cancellation deregisters the driver, then lets calls come to an end."""
        # Before it is watched: that it is not there yet is nothing to warn of. The look says what
        # keeps it from being made.
        with contextlib.suppress(OSError):
            self._make_directory()
        try:
            self._watcher.start()
        except OSError as error:
            log.warning(
                "the kernel grants no inotify instance (%s): a socket that somebody removes "
                "comes back after %g s or later",
                error,
                self.paces.resync,
            )
        try:
            await self.loop.run()
        finally:
            self._watcher.close()
            await self._registration.close()
            await self._server.close()

    # --- the sockets ---------------------------------------------------------------------------

    async def _look(self) -> float:
        """Returns in how many seconds to look again, 0: not before something changes."""
        # The kubelet makes the directories of all plugins, each plugin its own.
        if not await self._serve("csi socket", self._server, own_directory=True):
            return self.paces.again
        if not is_ready(self.volumes):
            # The kubelet would ask for the node at once.
            return self.paces.again
        if not await self._serve("csi registration socket", self._registration):
            return self.paces.again
        return await self._renew()

    async def _serve(self, what: str, server: Server, *, own_directory: bool = False) -> bool:
        """Whether the socket is there, be it a newer agent's."""
        try:
            if own_directory:
                self._make_directory()
            await server.ensure()
        except OSError as error:
            self._trouble(
                what,
                f"{server.path} cannot be served: {error.strerror or error}; "
                "the kubelet's directory must be there under its own path, and writable",
            )
            return False
        self._trouble(what, "")
        return True

    def _make_directory(self) -> None:
        """That of the driver's socket, unless it is there."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._directory, _DIRECTORY_MODE)

    async def _renew(self) -> float:
        """Have the kubelet ask again if that is due; returns the seconds until it is, 0: never."""
        due = self._renew_at
        left = due - asyncio.get_running_loop().time()
        if left == math.inf:
            return 0.0
        if left > 0:
            return left
        # Its answer sets the time of the next attempt, and may come before this returns.
        self._renew_at = math.inf
        try:
            await self._registration.renew()
        except OSError:
            # There is no new socket that the kubelet would see: it is still to be made.
            self._renew_at = min(due, self._renew_at)
            raise
        return 0.0

    # --- what is told --------------------------------------------------------------------------

    def _told(self, error: str) -> None:
        """The kubelet says why the driver is not registered, "" if it is."""
        self.metrics.registered.set(not error)
        if not error:
            text = f"the kubelet has registered {CSI_DRIVER}"
            log.info("%s", text)
            self._refusal.over(text)
            self._backoff.reset()
            self._renew_at = math.inf
            self._trouble("csi registration", "")
            return
        text = f"the kubelet does not register {CSI_DRIVER}: {error}"
        self._trouble("csi registration", text)
        self._refusal.stands(text)
        self._renew_at = asyncio.get_running_loop().time() + self._backoff.next()
        self.loop.wake()

    def _trouble(self, what: str, text: str) -> None:
        if text and self._problems.get(what) != text:
            log.error("%s: %s", what, text)
        self._problems.pop(what, None)
        if text:
            self._problems[what] = text

    def _changed(self, _path: str, _name: str | None) -> None:
        self.loop.wake()

    def _counted(self, method: str, status: str, seconds: float) -> None:
        self.metrics.operations.labels(CSI_DRIVER, method, status).observe(seconds)
