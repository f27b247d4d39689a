"""The CSI role's sockets in a kubelet's directory, and what it makes of the kubelet's answer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status
from prometheus_client import CollectorRegistry

from localvolume.csi.metrics import CsiMetrics
from localvolume.csi.paces import CsiPaces
from localvolume.csi.role import CsiRole
from localvolume.csi.wire import messages
from localvolume.csi.wire.server import Handle
from localvolume.dynamic.calls import NoRoom, NotNow
from localvolume.host.process.workers import Workers
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import EVENTS
from localvolume.reconcile.loop import AGAIN_SECONDS
from localvolume.volumes.manifest import NodeFacts
from localvolume_lab.sandbox import Sandbox
from tests.host.support_csi_wire import RPCS, call, status
from tests.suite.clock import Clock
from tests.suite.until import until_async

NODE = "node-1"
# A socket that is offered again is a new one, and closes the connection to the one before: the
# kubelet needs time to read the answer to what it told.
PACES = CsiPaces(again=0.05, first_wait=1.0, longest_wait=2.0)


@dataclass
class Node:
    """What the role waits for."""

    known: bool = True

    def node(self) -> NodeFacts:
        if not self.known:
            raise NotNow("the node is not known yet")
        return NodeFacts(NODE, "uid", NODE)


class Full:
    """A service that has no room."""

    @property
    def handlers(self) -> dict[str, Handle]:
        return {"CreateVolume": self.create}

    async def create(self, _request: Any) -> Any:
        raise NoRoom("no room")


@dataclass
class Kubelet:
    """A kubelet's directory, as it makes it, and what it asks of plugins."""

    directory: Path
    client: Client
    events: EventRecorder
    node: Node = field(default_factory=Node)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    @property
    def csi(self) -> Path:
        return self.directory / "plugins" / "csi.localvolume.dev" / "csi.sock"

    @property
    def registration(self) -> Path:
        return self.directory / "plugins_registry" / "csi.localvolume.dev-reg.sock"

    def make_directories(self) -> None:
        for name in ("plugins", "plugins_registry"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)

    @contextlib.asynccontextmanager
    async def role(self) -> AsyncIterator[CsiRole]:
        workers = Workers(2)
        role = CsiRole(
            volumes=self.node,
            services=(Full(),),
            events=self.events,
            workers=workers,
            metrics=CsiMetrics(self.registry),
            node_name=NODE,
            kubelet_directory=str(self.directory),
            paces=PACES,
        )
        task = asyncio.create_task(role.run())
        try:
            yield role
        finally:
            task.cancel()
            await asyncio.wait({task})
            workers.close()

    async def asks(self) -> Any:
        await until_async(self.registration.is_socket)
        return await call(self.registration, "GetInfo")

    async def tells(self, error: str = "") -> None:
        await call(
            self.registration,
            "NotifyRegistrationStatus",
            plugin_registered=not error,
            error=error,
        )

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    async def said(self) -> list[tuple[str, str]]:
        assert await self.events.flush(60)
        found = await self.client.list_page(EVENTS)
        return [(one.reason, one.message) for one in found.items]


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[Kubelet]:
    async with Sandbox(controllers=False) as sandbox:
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test") as client:
            events = EventRecorder(client, "test", NODE)
            async with events.speaking(60):
                with tempfile.TemporaryDirectory() as short:  # a socket's path must be
                    made = Kubelet(Path(short), client, events)
                    made.make_directories()
                    yield made


async def test_the_driver_is_served_and_registered(kubelet: Kubelet) -> None:
    async with kubelet.role() as role:
        info = await kubelet.asks()
        assert (info.type, info.name, info.endpoint, list(info.supported_versions)) == (
            "CSIPlugin",
            "csi.localvolume.dev",
            str(kubelet.csi),
            ["1.0.0"],
        )
        assert stat.S_IMODE(kubelet.csi.parent.stat().st_mode) == 0o750
        assert [one.name for one in kubelet.csi.parent.iterdir()] == ["csi.sock"]
        await until_async(lambda: not role.problems)
        assert kubelet.value("localvolume_csi_registered") == 0
        await kubelet.tells()
        assert kubelet.value("localvolume_csi_registered") == 1
        assert await status(kubelet.csi, "CreateVolume", name="v") == (
            Status.RESOURCE_EXHAUSTED,
            "no room",
        )
        labels = {
            "driver_name": "csi.localvolume.dev",
            "method_name": "/csi.v1.Controller/CreateVolume",
            "grpc_status_code": "ResourceExhausted",
        }
        assert kubelet.value("csi_operations_seconds_count", **labels) == 1
        assert not role.problems
    assert not kubelet.registration.exists()
    assert not kubelet.csi.exists()
    assert await kubelet.said() == []


async def test_identity(kubelet: Kubelet) -> None:
    kubelet.node.known = False
    async with kubelet.role() as role:
        await until_async(kubelet.csi.is_socket)
        info = await call(kubelet.csi, "GetPluginInfo")
        assert info == messages.GetPluginInfoResponse(
            name="csi.localvolume.dev",
            vendor_version=metadata.version("local-volume-provisioner"),
        )
        found = (await call(kubelet.csi, "GetPluginCapabilities")).capabilities
        assert [str(one).split() for one in found] == [
            ["service", "{", "type:", "CONTROLLER_SERVICE", "}"],
            ["service", "{", "type:", "VOLUME_ACCESSIBILITY_CONSTRAINTS", "}"],
            ["service", "{", "type:", "GROUP_CONTROLLER_SERVICE", "}"],
            ["service", "{", "type:", "SNAPSHOT_ACCESSIBILITY_CONSTRAINTS", "}"],
            ["service", "{", "type:", "SNAPSHOT_METADATA_SERVICE", "}"],
            ["volume_expansion", "{", "type:", "ONLINE", "}"],
        ]
        probe = await call(kubelet.csi, "Probe")
        assert probe.HasField("ready")
        assert not probe.ready.value
        # The kubelet would ask for the node, which is not known.
        await until_async(lambda: role.loop.looks)
        assert not kubelet.registration.exists()
        kubelet.node.known = True
        role.changed()
        await until_async(kubelet.registration.is_socket)
        assert (await call(kubelet.csi, "Probe")).ready.value
        for rpc in RPCS:
            if rpc not in ("GetPluginInfo", "GetPluginCapabilities", "Probe", "CreateVolume"):
                assert (await status(kubelet.csi, rpc))[0] is Status.UNIMPLEMENTED


async def test_a_driver_that_is_refused_is_told_and_offered_again(kubelet: Kubelet) -> None:
    async with kubelet.role() as role:
        await kubelet.asks()
        first = kubelet.registration.stat().st_ino
        await kubelet.tells("the label has another value")
        text = "the kubelet does not register csi.localvolume.dev: the label has another value"
        assert role.problems == {"csi registration": text}
        # A socket that appears makes the kubelet ask again.
        await until_async(lambda: kubelet.registration.stat().st_ino != first)
        assert role.problems == {"csi registration": text}
        await kubelet.asks()
        await kubelet.tells()
        assert role.problems == {}
        assert kubelet.value("localvolume_csi_registered") == 1
        assert await kubelet.said() == [
            ("CSIRegistrationFailed", text),
            ("CSIRegistrationFailedOver", "the kubelet has registered csi.localvolume.dev"),
        ]
        assert (await status(kubelet.csi, "CreateVolume", name="v"))[1] == "no room"


async def test_a_socket_that_cannot_be_made_anew_at_first_is_tried_again(kubelet: Kubelet) -> None:
    """The kubelet asks those that appear, and the old one has been there all along."""
    clock = Clock()
    async with kubelet.role() as role:
        await kubelet.asks()
        first = kubelet.registration.stat().st_ino
        # A new socket is made under that name first, as long as nothing is in the way.
        obstacle = kubelet.registration.parent / f".{kubelet.registration.name}.{os.getpid()}"
        obstacle.mkdir()
        await kubelet.tells("the label has another value")
        await until_async(lambda: "cannot be looked at" in role.problems.get("csi", ""))
        assert kubelet.registration.stat().st_ino == first
        obstacle.rmdir()
        clock.move_on(AGAIN_SECONDS)
        await until_async(lambda: kubelet.registration.stat().st_ino != first)
        await kubelet.asks()


async def test_sockets_that_somebody_removed_come_back(kubelet: Kubelet) -> None:
    async with kubelet.role():
        await kubelet.asks()
        kubelet.registration.unlink()
        await kubelet.asks()
        kubelet.csi.unlink()
        kubelet.csi.parent.rmdir()
        await until_async(kubelet.csi.is_socket)
        await call(kubelet.csi, "Probe")


async def test_a_directory_that_is_missing_is_a_problem_until_it_is_there(
    kubelet: Kubelet,
) -> None:
    (kubelet.directory / "plugins_registry").rmdir()
    (kubelet.directory / "plugins").rmdir()
    async with kubelet.role() as role:
        await until_async(lambda: role.problems.get("csi socket"))
        assert role.problems == {
            "csi socket": f"{kubelet.csi} cannot be served: No such file or directory; the "
            "kubelet's directory must be there under its own path, and writable"
        }
        (kubelet.directory / "plugins").mkdir()
        await until_async(lambda: role.problems.get("csi registration socket"))
        await call(kubelet.csi, "Probe")
        assert "csi socket" not in role.problems
        kubelet.make_directories()
        await kubelet.asks()
        await until_async(lambda: not role.problems)


async def test_the_agent_that_began_last_has_the_driver(kubelet: Kubelet) -> None:
    """Of two agents, as in an upgrade, the older one leaves the newer one's sockets alone."""
    async with kubelet.role() as old:
        await kubelet.asks()
        kubelet.registry = CollectorRegistry()
        async with kubelet.role() as new:
            await until_async(lambda: new.loop.looks)
            sockets = [path.stat().st_ino for path in (kubelet.csi, kubelet.registration)]
            looks = old.loop.looks
            old.changed()
            await until_async(lambda: old.loop.looks > looks)
            assert sockets == [path.stat().st_ino for path in (kubelet.csi, kubelet.registration)]
            assert old.problems == {}
            await kubelet.tells()
            assert kubelet.value("localvolume_csi_registered") == 1
        # The newer one has ended, and removed them: the older one serves again.
        await kubelet.asks()


async def test_a_path_that_nobody_can_connect_to_is_a_problem(kubelet: Kubelet) -> None:
    kubelet.directory = kubelet.directory / ("k" * 60)
    kubelet.make_directories()
    async with kubelet.role() as role:
        await until_async(lambda: role.problems.get("csi socket"))
        assert "is too long for a socket, which may have 107 bytes" in role.problems["csi socket"]


async def test_what_is_no_socket_is_a_problem_and_stays(kubelet: Kubelet) -> None:
    kubelet.registration.write_text("mine")
    async with kubelet.role() as role:
        await until_async(lambda: role.problems.get("csi registration socket"))
        assert "is no socket" in role.problems["csi registration socket"]
        await call(kubelet.csi, "Probe")
        os.unlink(kubelet.registration)
        await kubelet.asks()
