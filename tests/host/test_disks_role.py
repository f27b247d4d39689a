"""What a node says of its disks, and when it tries again: real disks, and an API in memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from localvolume.config.model import Configuration
from localvolume.disks.role import RETRY_SECONDS, DisksRole
from localvolume.host.process.workers import Workers
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import EVENTS, PERSISTENT_VOLUMES
from localvolume.kube.ownpod import OwnPod
from localvolume.kube.standing import AGAIN_SECONDS
from localvolume_lab.sandbox.sandbox import Sandbox
from tests.host.support_devices import LoopDevice, command
from tests.host.support_disks import NODE, Bench, bench, in_place_of
from tests.suite.clock import Clock
from tests.suite.podmounts import host, pod
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("root", "loop", "ext4")


@dataclass
class Setting:
    """A role of the bench's disks."""

    bench: Bench
    client: Client
    events: EventRecorder

    def configuration(self, **fields: Any) -> Configuration:
        classes = {one.name: one for one in self.bench.classes}
        known = {"storage_classes": classes, "disks": self.bench.config}
        return Configuration(**{**known, **fields})

    async def said(self) -> list[tuple[str, str]]:
        """The reasons and messages of all Events, each as often as it was said."""
        assert await self.events.flush(60)
        page = await self.client.list_page(EVENTS)
        return [(one.reason, one.message) for one in page.items for _ in range(one.count or 1)]

    async def times(self, reason: str) -> int:
        return [known for known, _ in await self.said()].count(reason)

    async def until_said(self, reason: str, times: int = 1) -> str:
        await until_async(lambda: self.times(reason), lambda found: found >= times)
        return next(text for known, text in await self.said() if known == reason)

    @contextlib.asynccontextmanager
    async def role(
        self,
        configuration: Configuration | None = None,
        *,
        looked: bool = True,
        recheck_seconds: float = 60.0,
        retry_seconds: float = RETRY_SECONDS,
        own_pod: OwnPod | None = None,
    ) -> AsyncIterator[DisksRole]:
        """One life of it, once it has `looked` for the first time."""
        volumes = Informer(self.client, PERSISTENT_VOLUMES, on_change=lambda old, new: None)
        workers = Workers()
        role = DisksRole(
            events=self.events,
            workers=workers,
            registry=CollectorRegistry(),
            volumes=volumes,
            own_pod=own_pod or OwnPod(self.client, "", ""),
            node_name=NODE,
            configuration=configuration or self.configuration(),
            by_id=str(self.bench.by_id),
            recheck_seconds=recheck_seconds,
            rest_seconds=0.0,
            retry_seconds=retry_seconds,
            tell=lambda _: None,
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(volumes.run()), group.create_task(role.run())]
            try:
                await until_async(lambda: role.loop.looks or not looked)
                yield role
            finally:
                for task in tasks:
                    task.cancel()
        workers.close()

    async def look(self, role: DisksRole) -> None:
        """Have it look once more, to the end."""
        # One that is under way has begun with what was known before: its end would be too soon.
        await until_async(lambda: role.loop.looking_since is None)
        seen = role.loop.looks
        role.changed()
        await until_async(lambda: role.loop.looks > seen)


@pytest.fixture
async def setting(tmp_path: Path, stack: contextlib.ExitStack) -> AsyncIterator[Setting]:
    with bench(tmp_path) as made:
        async with Sandbox(controllers=False) as sandbox:
            access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
            async with Client(access, user_agent="test") as client:
                events = EventRecorder(client, "test", NODE)
                async with events.speaking(60):
                    yield Setting(made, client, events)


async def plan_of(setting: Setting) -> str:
    return (await asyncio.to_thread(setting.bench.plan)).digest


async def approve(setting: Setting) -> None:
    setting.bench.approved |= {await plan_of(setting)}


def is_mounted(setting: Setting) -> bool:
    return any(os.path.ismount(path) for path in setting.bench.directory.iterdir())


async def test_the_same_is_said_once(setting: Setting, stack: contextlib.ExitStack) -> None:
    setting.bench.disk(stack)
    async with setting.role() as role:
        await setting.look(role)
        await setting.look(role)
    assert [reason for reason, _ in await setting.said()] == ["DisksNotApproved"]


async def test_nothing_is_formatted_for_a_class_that_looks_elsewhere(
    setting: Setting, stack: contextlib.ExitStack
) -> None:
    """S14: hostDir is edited, what is mounted at mountDir is not."""
    setting.bench.disk(stack)
    await approve(setting)
    own_pod, directory = OwnPod(setting.client, "", ""), str(setting.bench.directory)
    own_pod.pod = pod(host(directory, "/host/other"))
    async with setting.role(own_pod=own_pod) as role:
        await setting.look(role)
        assert await setting.said() == []
        assert not is_mounted(setting)
        own_pod.pod = pod(host(directory, "/host/fast"))
        role.changed()
        await setting.until_said("DiskFormatted")
        assert is_mounted(setting)


async def test_without_filters_no_disk_is_looked_at(
    setting: Setting, stack: contextlib.ExitStack
) -> None:
    setting.bench.disk(stack)
    async with setting.role(setting.configuration(disks=None)) as role:
        await setting.look(role)
        assert await setting.said() == []
        # They come by a change of the configuration.
        role.reconfigure(setting.configuration())
        await setting.until_said("DisksNotApproved")


async def test_a_disk_that_failed_is_tried_again_after_a_while_and_not_before(
    setting: Setting,
    stack: contextlib.ExitStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, bad = setting.bench.disk(stack), setting.bench.disk(stack)
    await approve(setting)
    mkfs, tried = shutil.which("mkfs.ext4"), tmp_path / "tried"
    # The second one fails, each time.
    script = (
        f'echo x >> {tried}; [ "$(wc -l < {tried})" = 1 ] || {{ echo "no" >&2; exit 1; }};'
        f' exec {mkfs} "$@"'
    )
    with contextlib.ExitStack() as failing:
        failing.enter_context(in_place_of("mkfs.ext4", script, tmp_path / "bin", monkeypatch))
        async with setting.role() as role:
            assert (await setting.until_said("DiskFormatFailed")).endswith("mkfs.ext4: no")
            await setting.look(role)
            await setting.look(role)
            assert tried.read_text() == "x\nx\n"
        assert await setting.times("DiskFormatFailed") == 1
        assert await setting.times("DiskFormatted") == 1
        # In the next life, and then again in the same one.
        async with setting.role(retry_seconds=0.0):
            await setting.until_said("DiskFormatFailed", 2)
            failing.close()
            await setting.until_said("DiskFormatted", 2)
    assert {holds(good), holds(bad)} == {"ext4"}


@pytest.mark.parametrize("gone", ["filters", "approval", "disk"])
async def test_a_failure_is_said_again_each_hour_while_the_disk_is_to_be_formatted(
    setting: Setting,
    stack: contextlib.ExitStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gone: str,
) -> None:
    clock, attached = Clock(), contextlib.ExitStack()
    with attached, in_place_of("mkfs.ext4", "exit 1", tmp_path / "bin", monkeypatch):
        setting.bench.disk(attached)
        await approve(setting)
        async with setting.role() as role:
            await setting.until_said("DiskFormatFailed")
            await setting.look(role)
            clock.move_on(AGAIN_SECONDS)
            await setting.until_said("DiskFormatFailed", 2)
            if gone == "disk":
                attached.close()
            elif gone == "approval":
                setting.bench.approved = frozenset()
            role.reconfigure(setting.configuration(**{"disks": None} if gone == "filters" else {}))
            await setting.look(role)
            clock.move_on(AGAIN_SECONDS)
            await setting.look(role)
            assert await setting.times("DiskFormatFailed") == 2


@pytest.mark.parametrize("by_hand", [False, True])
async def test_a_finished_disk_that_cannot_be_mounted_is_told_of(
    setting: Setting, stack: contextlib.ExitStack, by_hand: bool
) -> None:
    clock = Clock()
    disk = setting.bench.disk(stack)
    await approve(setting)
    async with setting.role():
        await setting.until_said("DiskFormatted")
    (place,) = setting.bench.directory.iterdir()
    command("umount", place)
    with open(disk.path, "r+b") as file:
        file.seek(4096)
        descriptors = file.read(4096)
        file.seek(4096)
        file.write(b"\xff" * 4096)
    async with setting.role(retry_seconds=0.0) as role:
        said = await setting.until_said("DiskMountFailed")
        assert os.path.basename(disk.path) in said
        await setting.look(role)
        assert await setting.times("DiskMountFailed") == 1
        assert not is_mounted(setting)
        clock.move_on(AGAIN_SECONDS)
        await setting.until_said("DiskMountFailed", 2)
        # That is said by the clock. The look that it called for as well must be over, or it would
        # mount the disk while somebody mends it.
        await setting.look(role)
        with open(disk.path, "r+b") as file:
            file.seek(4096)
            file.write(descriptors)
        if by_hand:
            command("mount", disk.path, place)
        await setting.look(role)
        if not by_hand:
            await setting.until_said("DiskMounted")
        assert is_mounted(setting)
        clock.move_on(AGAIN_SECONDS)
        await setting.look(role)
        assert await setting.times("DiskMountFailed") == 2


async def test_an_approval_outlives_a_change_of_something_else(
    setting: Setting,
    stack: contextlib.ExitStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the first of two disks is being formatted, say: the second would be left."""
    for _ in range(2):
        setting.bench.disk(stack)
    await approve(setting)
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    wait = f": > {begun}; while ! [ -e {go_on} ]; do sleep 0.01; done"
    script = f'{wait}; exec {shutil.which("mkfs.ext4")} "$@"'
    with in_place_of("mkfs.ext4", script, tmp_path / "bin", monkeypatch):
        async with setting.role(looked=False) as role:
            await until_async(begun.exists)
            role.reconfigure(setting.configuration(use_node_name_only=True))
            go_on.touch()
            await setting.until_said("DiskFormatted", 2)
    assert not await setting.times("DiskFormatFailed")


def holds(disk: LoopDevice) -> str:
    return command("blkid", "-p", "-s", "TYPE", "-o", "value", disk.path).strip()
