"""FlexVolume on one node: the server, the client's installation, and what goes on beside the calls.

A new configuration restarts all of it once the calls under way have ended; the informers and the
metrics stay.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass

from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.config.model import Configuration
from localvolume.flexvolume.binding import Binding
from localvolume.flexvolume.calls import Calls
from localvolume.flexvolume.collecting import Collector, CollectorMetrics
from localvolume.flexvolume.driver import Driver, DriverFailed
from localvolume.flexvolume.install import NotInstalled, install
from localvolume.flexvolume.keeping import Keeping
from localvolume.flexvolume.metrics import FlexMetrics
from localvolume.flexvolume.paces import FlexPaces
from localvolume.flexvolume.plan.collect import Keep, NoteGone, Remove
from localvolume.flexvolume.protocol import Refused
from localvolume.flexvolume.server import Server
from localvolume.flexvolume.turns import Turns
from localvolume.host.process.commandsync import on_loop
from localvolume.host.process.workers import UNREADABLE, Hung, Workers
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import NODES
from localvolume.kube.objects import Node, PersistentVolume, PersistentVolumeClaim
from localvolume.reconcile.loop import CannotLook, Loop, Rest
from localvolume.volumes.manifest import NodeFacts, node_facts
from localvolume.volumes.objects import is_being_deleted

log = logging.getLogger(__name__)

INSTALL_SECONDS = 600.0
INSTALL_DEADLINE = 60.0


@dataclass(frozen=True, slots=True)
class _Served:
    """What looks at the volumes of one configuration."""

    config: FlexVolumeConfig
    keeping: Keeping
    collector: Collector


@dataclass(eq=False, kw_only=True)
class FlexRole:
    """The FlexVolume volumes of one node. Run `run()` as a task."""

    client: Client
    events: EventRecorder
    workers: Workers
    metrics: FlexMetrics
    collector_metrics: CollectorMetrics
    volumes: Informer[PersistentVolume]
    claims: Informer[PersistentVolumeClaim]
    nodes: Informer[Node]
    node_name: str
    configuration: Configuration
    paces: FlexPaces

    def __post_init__(self) -> None:
        self._config = self.configuration.flexvolume
        self._reconfigured = asyncio.Event()
        rest = Rest(shortest=self.paces.rest, longest=self.paces.longest_rest)
        self.loop = Loop("flexvolume", self._look, rest=rest, unreadable=UNREADABLE)
        self._served: _Served | None = None
        self._adopted = False
        self._server: Server | None = None
        self._problems: dict[str, str] = {}
        self.serving = asyncio.Event()
        """Set once the socket is ours, under any configuration."""

    @property
    def problems(self) -> dict[str, str]:
        """What keeps volumes from being served; the role is ready if empty.

        It is no problem that another process has the socket: that one ends once we are ready.
        """
        server = self._server.problem if self._server else ""
        looking = self.loop.problem if self._served else ""
        found = {"flexvolume socket": server, "flexvolume volumes": looking}
        return {**self._problems, **{what: text for what, text in found.items() if text}}

    def changed(self, *_: object) -> None:
        """An object or the mount table changed."""
        self.loop.wake()

    def reconfigure(self, configuration: Configuration) -> None:
        """Use another configuration from now on."""
        if configuration.flexvolume != self._config:
            self._config = configuration.flexvolume
            self._reconfigured.set()

    async def run(self) -> None:
        """Never returns; on cancellation lets calls under way come to an end."""
        while True:
            self._reconfigured.clear()
            serving = asyncio.create_task(self._serve(self._config))
            changed = asyncio.create_task(self._reconfigured.wait())
            try:
                await asyncio.wait({serving, changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (serving, changed):
                    task.cancel()
                await asyncio.wait({serving, changed})
            if not serving.cancelled() and (error := serving.exception()) is not None:
                raise error

    async def _serve(self, config: FlexVolumeConfig | None) -> None:
        self._server, self._served, self._problems = None, None, {}
        if config is None:
            await asyncio.Event().wait()
            return
        driver = make_driver(config, asyncio.get_running_loop())
        turns = Turns(self.workers)
        binding = Binding(self.client, self.node_name, self._node, self.volumes.apply_own_write)
        calls = Calls(
            config=config,
            driver=driver,
            turns=turns,
            binding=binding,
            metrics=self.metrics,
        )
        keeping = Keeping(
            client=self.client,
            events=self.events,
            workers=self.workers,
            config=config,
            driver=driver,
            turns=turns,
            binding=binding,
            metrics=self.metrics,
            node_name=self.node_name,
            saw_volume=self.volumes.apply_own_write,
            saw_claim=self.claims.apply_own_write,
        )
        collector = Collector(
            self.client,
            driver,
            self.workers,
            turns,
            self.collector_metrics,
            grace_seconds=config.grace_seconds,
            watched_seconds=self.paces.watched,
        )
        self._server = server = Server(config.socket, calls.routes)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(server.run())
                # No earlier: another agent of this node may still be at work.
                await server.serving.wait()
                self.serving.set()
                tasks.create_task(self._install_forever(config))
                for one in (self.volumes, self.claims, self.nodes):
                    await one.synced.wait()
                self._served = _Served(config, keeping, collector)
                self._adopted = False
                self.loop.wake()
                tasks.create_task(self.loop.run())
        finally:
            await collector.stop()

    async def _node(self) -> Node:
        """This node's object. Raises ApiError."""
        found = self.nodes.items.get(self.node_name)
        return await self.client.get(NODES, self.node_name) if found is None else found

    # --- the client ----------------------------------------------------------------------------

    async def _install_forever(self, config: FlexVolumeConfig) -> None:
        while True:
            try:
                changed = await self.workers.call(
                    "flexvolume client", INSTALL_DEADLINE, install, config
                )
            except (NotInstalled, Hung, OSError) as error:
                self._trouble("flexvolume client", f"the client is not installed: {error}")
                await asyncio.sleep(self.paces.again)
                continue
            self._trouble("flexvolume client", "")
            for path in changed:
                log.info("installed %s", path)
            await asyncio.sleep(INSTALL_SECONDS)

    # --- beside the calls ----------------------------------------------------------------------

    async def _look(self) -> float:
        """Returns in how many seconds to look again. Raises CannotLook, Hung, OSError."""
        served = self._served
        if served is None:
            raise CannotLook("nothing is served yet")
        node = node_facts(self.node_name, self.nodes.items.get(self.node_name))
        self._adopted = self._adopted or await self._adopt(served.keeping, node)
        if isinstance(node, str):
            raise CannotLook(node, self.paces.again)
        wait = await self._look_at_volumes(served, node)
        return wait if self._adopted else min(wait, self.paces.again)

    async def _adopt(self, keeping: Keeping, node: NodeFacts | str) -> bool:
        """Returns whether it is done. Once is enough: our own mounts mark what they use."""
        why_not = node if isinstance(node, str) else ""
        complete = False
        if isinstance(node, NodeFacts):
            try:
                await keeping.mark_elastics(node)
            except (ApiError, Refused) as error:
                why_not = str(error)
            else:
                adopted = await keeping.adopt(node)
                self.metrics.adopted.inc(len(adopted.names))
                complete = adopted.complete
                why_not = "" if complete else "see the log"
        text = f"what elastic's driver made here is not taken over yet: {why_not}"
        self._trouble("flexvolume adoption", text if why_not else "")
        return complete

    async def _look_at_volumes(self, served: _Served, node: NodeFacts) -> float:
        volumes = dict(self.volumes.items)
        try:
            await served.keeping.look(node, volumes, self.claims.items)
        except (DriverFailed, Hung, OSError) as error:
            raise CannotLook(f"they cannot be listed: {error}", self.paces.again) from error
        there = {
            name: one.metadata.uid for name, one in volumes.items() if not is_being_deleted(one)
        }
        actions = await served.collector.sweep(there)
        wait = self.paces.resync * (1 + random.random())  # noqa: S311 - jitter
        if any(
            isinstance(one, NoteGone) or (isinstance(one, Keep) and one.waiting) for one in actions
        ):
            wait = min(wait, max(self.paces.rest, served.config.grace_seconds / 4))
        if any(isinstance(one, Remove) for one in actions):
            wait = min(wait, self.paces.again)  # it may have failed, or go on
        return wait

    def _trouble(self, what: str, text: str) -> None:
        if text and self._problems.get(what) != text:
            log.error("%s: %s", what, text)
        self._problems.pop(what, None)
        if text:
            self._problems[what] = text


def make_driver(config: FlexVolumeConfig, loop: asyncio.AbstractEventLoop) -> Driver:
    """The driver that the configuration names; only its code is imported."""
    if config.driver == "bindmount":
        from localvolume.flexvolume.drivers.bindmount import BindDriver

        return BindDriver(config.bind_root)
    if config.driver == "empty":
        from localvolume.flexvolume.drivers.empty import EmptyDriver

        return EmptyDriver()
    from localvolume.flexvolume.drivers.lvm.driver import LvmDriver

    return LvmDriver(config, on_loop(loop))
