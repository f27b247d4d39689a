"""When the static role looks at its volumes: real mounts, and an API in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from prometheus_client import CollectorRegistry

from localvolume.agent.shared import selector_of
from localvolume.config.model import ClassConfig, Configuration
from localvolume.host.process.workers import Hung, Workers
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
from tests.suite.clock import LONG
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("root")

R = TypeVar("R")

NODE = "node"
LONGEST_REST = 1.0
PACES = StaticPaces(publishers=1, patience=60.0)


class Silent(Workers):
    """Workers that get no answer from one directory, for as long as it is `dead`."""

    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory = directory
        self.dead = True
        self.asked = 0

    async def call(self, key: str, seconds: float, fn: Callable[..., R], *args: Any) -> R:
        if self.dead and key == self._directory:
            self.asked += 1
            raise Hung(key, seconds)
        return await super().call(key, seconds, fn, *args)


@contextlib.asynccontextmanager
async def role_of(
    client: Client,
    fs: ClassConfig,
    workers: Workers,
    paces: StaticPaces = PACES,
    *,
    jobs: bool = False,
) -> AsyncIterator[StaticRole]:
    """The role of a node that offers what is mounted in one directory, one after the other."""

    def changed(old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        role.volume_changed(old, new)

    def jobs_changed() -> None:
        role.objects_changed()

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
        jobs=JobWatch(client, "default", NODE, jobs_changed, paces.jobs_again),
        own_pod=OwnPod(client, "", ""),
        node_name=NODE,
        job_image="example.com/agent" if jobs else None,
        configuration=Configuration(storage_classes={fs.name: fs}, use_job_for_cleaning=jobs),
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


@contextlib.asynccontextmanager
async def cluster_with(fs: ClassConfig, tmp_path: Path) -> AsyncIterator[tuple[Sandbox, Client]]:
    """The API server, and a client of it, with this node and that class."""
    async with Sandbox(controllers=False) as sandbox:
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test") as client:
            labels = {"kubernetes.io/hostname": NODE}
            await client.create(NODES, {"metadata": {"name": NODE, "labels": labels}})
            provisioner = "kubernetes.io/no-provisioner"
            body = {"metadata": {"name": fs.name}, "provisioner": provisioner}
            await client.create(STORAGE_CLASSES, body)
            yield sandbox, client


async def test_what_is_published_together_takes_one_look_at_the_end(
    tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    fs = ClassConfig(name="fs", host_dir="/host/fs", mount_dir=str(tmp_path / "fs"))
    for number in range(4):
        where = tmp_path / "fs" / f"disk-{number}"
        where.mkdir(parents=True)
        stack.enter_context(tmpfs(where))
    async with cluster_with(fs, tmp_path) as (sandbox, client):
        # Longer than the role rests: a look for each would have the time.
        sandbox.faults.delay(0.4, verb="create", resource="persistentvolumes", times=4)
        async with role_of(client, fs, Workers()) as role:
            await until_async(lambda: len(role.volumes.items) == 4)
            await until_async(lambda: role.loop.looks > 1)
            await asyncio.sleep(LONGEST_REST)
            assert role.loop.looks == 2
            # What comes later is looked at by itself.
            patch = MergePatch({"status": {"phase": "Available"}})
            name = next(iter(role.volumes.items))
            await client.patch(PERSISTENT_VOLUMES, name, patch, subresource="status")
            await until_async(lambda: role.loop.looks > 2)


async def test_a_directory_that_answers_again_is_listed_without_anything_else_happening(
    tmp_path: Path,
) -> None:
    """No volume is held for it, and nothing is mounted or unmounted when it comes back."""
    directory = tmp_path / "fs"
    directory.mkdir()
    fs = ClassConfig(name="fs", host_dir="/host/fs", mount_dir=str(directory))
    workers = Silent(str(directory))
    async with (
        cluster_with(fs, tmp_path) as (_, client),
        role_of(client, fs, workers, replace(PACES, look_again=0.01, stale=0.0)) as role,
    ):
        await until_async(lambda: "cannot be listed" in role.problems.get("fs", ""))
        workers.dead = False
        await until_async(lambda: not role.problems)


async def test_a_directory_that_does_not_answer_is_not_listed_at_each_look(tmp_path: Path) -> None:
    """It takes its time each time, and whatever wakes the role would wait for it."""
    directory = tmp_path / "fs"
    directory.mkdir()
    fs = ClassConfig(name="fs", host_dir="/host/fs", mount_dir=str(directory))
    workers = Silent(str(directory))
    async with (
        cluster_with(fs, tmp_path) as (_, client),
        role_of(client, fs, workers, replace(PACES, look_again=0.01, stale=LONG)) as role,
    ):
        # The first looks also list it because nothing was known.
        await until_async(lambda: role.loop.looks > 3)
        asked, looks = workers.asked, role.loop.looks
        assert asked > 0
        await until_async(lambda: role.loop.looks > looks + 5)
        assert workers.asked == asked


async def test_jobs_that_can_be_seen_again_are_without_anything_else_happening(
    tmp_path: Path,
) -> None:
    """There is no Job whose watch would tell, and no volume that is held."""
    directory = tmp_path / "fs"
    directory.mkdir()
    fs = ClassConfig(name="fs", host_dir="/host/fs", mount_dir=str(directory))
    async with cluster_with(fs, tmp_path) as (sandbox, client):
        # The first list is of those without this node's label.
        sandbox.faults.answer(403, verb="list", resource="jobs", skip=1, times=None)
        paces = replace(PACES, look_again=0.01)
        async with role_of(client, fs, Workers(), paces, jobs=True) as role:
            await until_async(lambda: "nothing can be cleaned" in role.problems.get("", ""))
            sandbox.faults.clear()
            await until_async(lambda: not role.problems)
