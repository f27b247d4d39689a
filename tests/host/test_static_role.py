"""When the static role looks at its volumes: real mounts, and an API in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from localvolume.agent.shared import selector_of
from localvolume.config.model import ClassConfig, Configuration
from localvolume.host.process.workers import Workers
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import NODES, PERSISTENT_VOLUMES, STORAGE_CLASSES
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.ownpod import OwnPod
from localvolume.static.jobs.watch import JobWatch
from localvolume.static.metrics import StaticMetrics
from localvolume.static.paces import StaticPaces
from localvolume.static.role import StaticRole
from localvolume_lab.sandbox.sandbox import Sandbox
from tests.host.support_devices import tmpfs
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("root")

NODE = "node"
LONGEST_REST = 1.0


@contextlib.asynccontextmanager
async def role_of(client: Client, fs: ClassConfig) -> AsyncIterator[StaticRole]:
    """The role of a node that offers what is mounted in one directory, one after the other."""

    def changed(old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        role.volume_changed(old, new)

    workers, paces = Workers(), StaticPaces(publishers=1, patience=60.0)
    role = StaticRole(
        client=client,
        events=EventRecorder(client, "test", NODE),
        workers=workers,
        metrics=StaticMetrics(CollectorRegistry()),
        volumes=Informer(
            client, PERSISTENT_VOLUMES, label_selector=selector_of(NODE), on_change=changed
        ),
        storage_classes=Informer(client, STORAGE_CLASSES, on_change=lambda *_: None),
        nodes=Informer(client, NODES, on_change=lambda *_: None),
        jobs=JobWatch(client, "default", NODE, lambda: None, paces.jobs_again),
        own_pod=OwnPod(client, "", ""),
        node_name=NODE,
        job_image=None,
        configuration=Configuration(storage_classes={fs.name: fs}),
        paces=paces,
    )
    parts = (role, role.volumes, role.storage_classes, role.nodes, role.jobs)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part.run()) for part in parts]
        try:
            yield role
        finally:
            for task in tasks:
                task.cancel()
    workers.close()


async def test_what_is_published_together_takes_one_look_at_the_end(
    tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    fs = ClassConfig(name="fs", host_dir="/host/fs", mount_dir=str(tmp_path / "fs"))
    for number in range(4):
        where = tmp_path / "fs" / f"disk-{number}"
        where.mkdir(parents=True)
        stack.enter_context(tmpfs(where))
    async with Sandbox(controllers=False) as sandbox:
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test") as client:
            labels = {"kubernetes.io/hostname": NODE}
            await client.create(NODES, {"metadata": {"name": NODE, "labels": labels}})
            provisioner = "kubernetes.io/no-provisioner"
            body = {"metadata": {"name": fs.name}, "provisioner": provisioner}
            await client.create(STORAGE_CLASSES, body)
            # Longer than the role rests: a look for each would have the time.
            sandbox.faults.delay(0.4, verb="create", resource="persistentvolumes", times=4)
            async with role_of(client, fs) as role:
                await until_async(lambda: len(role.volumes.items) == 4)
                await until_async(lambda: role.loop.looks > 1)
                await asyncio.sleep(LONGEST_REST)
                assert role.loop.looks == 2
                # What comes later is looked at by itself.
                patch = MergePatch({"status": {"phase": "Available"}})
                name = next(iter(role.volumes.items))
                await client.patch(PERSISTENT_VOLUMES, name, patch, subresource="status")
                await until_async(lambda: role.loop.looks > 2)
