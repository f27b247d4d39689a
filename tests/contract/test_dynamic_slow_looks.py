"""What the API server has said counts, though a look at pools takes longer than it counts for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from localvolume.backends.model import Record
from localvolume.config.model import Configuration
from localvolume.config.pools import PoolConfig
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.capacityrole import CapacityRole
from localvolume.dynamic.metrics import DynamicMetrics
from localvolume.dynamic.paces import DynamicPaces
from localvolume.dynamic.pools import Pools
from localvolume.dynamic.preconditions import FRESH_SECONDS
from localvolume.dynamic.role import DynamicRole
from localvolume.dynamic.throttling.act import throttle_for
from localvolume.host.process.workers import Workers
from localvolume.kube.client import Client
from localvolume.kube.ending import ended
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import (
    CLAIMS,
    NODES,
    PERSISTENT_VOLUMES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
)
from localvolume.kube.ownpod import OwnPod
from localvolume.volumes.periods import Clock
from tests.host.support_pools import config_of, wish
from tests.suite.until import until_async

R = TypeVar("R")
NODE = "node-1"


class Slow(Workers):
    """Workers with a clock, by which each look at the pool takes longer than an answer counts."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    async def call(self, key: str, seconds: float, fn: Callable[..., R], *args: Any) -> R:
        result = await super().call(key, seconds, fn, *args)
        if key == "pool pool":
            self.passed += FRESH_SECONDS + 1
        return result


async def make(pool: PoolConfig, **fields: Any) -> Record:
    """The record of a volume that an agent has made, before the one of the test."""
    workers = Workers(limit=2)
    pools = Pools(workers)
    pools.configure([pool], [])
    # Only root makes volumes for others.
    wanted = wish(uid=os.geteuid(), gid=os.getegid(), **fields)
    made = await pools.call(pool, wanted.name, lambda store: store.make(wanted))
    if made.request:
        made = await pools.call(pool, made.name, lambda store: store.offered(made))
    pools.close()
    workers.close()
    return made


@asynccontextmanager
async def role_at(client: Client, pool: PoolConfig) -> AsyncIterator[DynamicRole]:
    """The role of a node with that pool, which runs."""
    labels = {"kubernetes.io/hostname": NODE}
    await client.create(NODES, {"metadata": {"name": NODE, "labels": labels}})
    workers, wakes = Slow(), list[Callable[[], object]]()

    def changed(*_: object) -> None:
        for wake in wakes:
            wake()

    role = DynamicRole(
        client=client,
        events=EventRecorder(client, "test", NODE),
        workers=workers,
        metrics=DynamicMetrics(CollectorRegistry()),
        volumes=Informer(client, PERSISTENT_VOLUMES, on_change=changed),
        claims=Informer(client, CLAIMS, on_change=changed),
        storage_classes=Informer(client, STORAGE_CLASSES, on_change=changed),
        nodes=Informer(client, NODES, on_change=changed),
        capacities=CapacityRole(
            client, Informer(client, STORAGE_CAPACITIES, on_change=changed), "default"
        ),
        own_pod=OwnPod(client, "", ""),
        node_name=NODE,
        configuration=Configuration(pools=(pool,)),
        paces=DynamicPaces(unwanted=0.0),
        clock=Clock(steady=lambda: workers.passed),
        on_known=lambda: None,
        throttle=throttle_for("", None),
        driver=True,
    )
    wakes.append(role.changed)
    parts = (role.volumes, role.claims, role.storage_classes, role.nodes, role)
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        yield role
    finally:
        await ended(*tasks)
        workers.close()


async def test_what_nobody_wants_is_taken_away(client: Client, tmp_path: Path) -> None:
    pool = config_of(tmp_path, must_be_mounted=False)
    assert (await make(pool)).state == "made"
    assert (tmp_path / "pvc-1").is_dir()
    async with role_at(client, pool):
        await until_async(lambda: not (tmp_path / "pvc-1").exists())


async def test_a_volume_of_a_pod_that_is_over_is_removed(client: Client, tmp_path: Path) -> None:
    pool = config_of(tmp_path, must_be_mounted=False)
    made = await make(
        pool,
        claim="",
        claim_uid="",
        driver=CSI_DRIVER,
        request="a pod's own",
        pod="default/web",
        pod_uid="uid-of-web",
    )
    assert made.state == "offered"
    assert (tmp_path / "pvc-1").is_dir()
    async with role_at(client, pool):
        await until_async(lambda: not (tmp_path / "pvc-1").exists())
