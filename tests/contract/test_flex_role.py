"""FlexVolume on one node, whole: what keeps it from serving is told, and when it begins anew."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.config.model import Configuration
from localvolume.flexvolume.collecting import CollectorMetrics
from localvolume.flexvolume.metrics import FlexMetrics
from localvolume.flexvolume.paces import FlexPaces
from localvolume.flexvolume.role import FlexRole
from localvolume.host.process.workers import Workers
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import CLAIMS, NODES, PERSISTENT_VOLUMES
from localvolume.volumes import marks
from tests.suite.until import until_async

NODE = "node-1"
QUICK = FlexPaces(rest=0.01, longest_rest=0.05, resync=60.0, again=0.02)


@dataclass
class Ground:
    """A role with the informers that feed it."""

    client: Client
    config: FlexVolumeConfig
    role: FlexRole = field(init=False)

    def __post_init__(self) -> None:
        registry = CollectorRegistry()
        self.volumes = Informer(self.client, PERSISTENT_VOLUMES, on_change=self.changed)
        self.claims = Informer(self.client, CLAIMS, on_change=self.changed)
        self.nodes = Informer(self.client, NODES, on_change=self.changed)
        self.role = FlexRole(
            client=self.client,
            events=EventRecorder(self.client, "test", NODE),
            workers=Workers(),
            metrics=FlexMetrics(registry),
            collector_metrics=CollectorMetrics(registry),
            volumes=self.volumes,
            claims=self.claims,
            nodes=self.nodes,
            node_name=NODE,
            configuration=Configuration(flexvolume=self.config),
            paces=QUICK,
        )

    def changed(self, *_: object) -> None:
        self.role.changed()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        informers = (self.volumes, self.claims, self.nodes)
        tasks = [asyncio.create_task(one.run()) for one in (*informers, self.role)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def looked(self) -> None:
        """Has looked once more, from beginning to end."""
        for _ in range(2):
            least = self.role.loop.looks + 1
            self.role.changed()
            await until_async(lambda: self.role.loop.looks, least.__le__)


@pytest.fixture
def config(tmp_path: Path) -> FlexVolumeConfig:
    root = tmp_path / "volumes"
    root.mkdir()
    return FlexVolumeConfig(
        driver="bindmount",
        bind_root=str(root),
        socket=str(tmp_path / "run/one.sock"),
        plugin_directory=str(tmp_path / "plugins"),
    )


async def test_without_its_nodes_hostname_it_says_what_is_missing(
    client: Client, config: FlexVolumeConfig
) -> None:
    """To nothing can a volume be bound; kubelet gives a Node its labels a moment after its name."""
    await client.create(NODES, {"metadata": {"name": NODE}})
    ground = Ground(client, config)
    async with ground.running():
        await until_async(lambda: len(ground.role.problems) == 2)
        why = f"the Node '{NODE}' has no label {marks.HOSTNAME_LABEL}"
        assert ground.role.problems == {
            "flexvolume adoption": f"what elastic's driver made here is not taken over yet: {why}",
            "flexvolume volumes": why,
        }
        patch = MergePatch({"metadata": {"labels": {marks.HOSTNAME_LABEL: NODE}}})
        await client.patch(NODES, NODE, patch)
        await until_async(lambda: not ground.role.problems)


async def test_only_another_configuration_begins_anew(
    client: Client, config: FlexVolumeConfig
) -> None:
    """Whatever else of a ConfigMap changes, pods that start meanwhile are served on."""
    await client.create(NODES, {"metadata": {"name": NODE, "labels": {marks.HOSTNAME_LABEL: NODE}}})
    ground = Ground(client, config)
    async with ground.running():
        await ground.role.serving.wait()
        before = os.stat(config.socket).st_ctime_ns
        same = Configuration(flexvolume=replace(config), min_resync_period_seconds=99.0)
        ground.role.reconfigure(same)
        await ground.looked()
        assert os.stat(config.socket).st_ctime_ns == before
        other = replace(config, socket=f"{config.socket}.other")
        ground.role.reconfigure(Configuration(flexvolume=other))
        await until_async(lambda: os.path.exists(other.socket))
        assert not os.path.exists(config.socket)


async def test_a_configuration_that_no_driver_takes_ends_the_agent(
    client: Client, config: FlexVolumeConfig
) -> None:
    """Files cannot say it; should it come to be all the same, nobody may take it for serving."""
    ground = Ground(client, replace(config, driver="lvm"))
    with pytest.raises(ValueError, match="need a volume group"):
        await ground.role.run()
    assert not ground.role.serving.is_set()
