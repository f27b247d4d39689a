"""The taint of a Node: what must still be so right before it is removed, and what is said."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from localvolume.agent.taint import Due, NotReadyTaint
from localvolume.config.model import Configuration
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.errors import LookAgain
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import NODES
from localvolume.kube.objects import Node
from localvolume_lab.sandbox.sandbox import Sandbox
from tests.suite.until import until_async

KEY = "example.com/not-ready"
ASKED = Configuration(remove_node_not_ready_taint=True, provisioner_not_ready_node_taint_key=KEY)


@dataclass(kw_only=True)
class Setting:
    sandbox: Sandbox
    client: Client
    taint: NotReadyTaint
    node: Node
    looks: list[None]

    def asked(self, verb: str) -> int:
        return sum((one.verb, one.resource) == (verb, "nodes") for one in self.sandbox.requests)

    async def is_there(self) -> bool:
        """Beside those that Kubernetes gives every new Node."""
        node = await self.client.get(NODES, "node")
        return any(taint.key == KEY for taint in node.spec.taints)


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    async with Sandbox(controllers=False) as sandbox:
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test") as client:
            spec = {"taints": [{"key": KEY, "effect": "NoSchedule"}]}
            node = await client.create(NODES, {"metadata": {"name": "node"}, "spec": spec})
            sandbox.requests.clear()
            looks: list[None] = []
            taint = NotReadyTaint(
                client=client,
                events=EventRecorder(client, "test", "node"),
                nodes={"node": node},
                node_name="node",
                look_at_volumes=lambda: looks.append(None),
                configuration=ASKED,
                first_wait=0.01,
                longest_wait=0.01,
            )
            yield Setting(sandbox=sandbox, client=client, taint=taint, node=node, looks=looks)


@contextlib.asynccontextmanager
async def running(taint: NotReadyTaint) -> AsyncIterator[None]:
    task = asyncio.create_task(taint.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def offered_twice(setting: Setting) -> None:
    await until_async(lambda: len(setting.looks) == 1)
    setting.taint.volumes_offered()
    setting.taint.volumes_offered()


async def test_a_look_that_was_under_way_does_not_count(setting: Setting) -> None:
    """It may have begun with the Node or the configuration of before."""
    async with running(setting.taint):
        await until_async(lambda: len(setting.looks) == 1)
        setting.taint.volumes_offered()
        assert len(setting.looks) == 2, "the volumes are looked at once more"
        await asyncio.sleep(0.2)
        assert setting.asked("get") == 0
        setting.taint.volumes_offered()
        await until_async(setting.is_there, lambda there: not there)


async def test_a_node_made_anew_keeps_it_until_the_informer_tells_of_it(setting: Setting) -> None:
    due = Due("the-one-before", KEY)
    with pytest.raises(LookAgain, match="another one now"):
        await setting.taint._remove(due)
    assert setting.asked("patch") == 0


async def test_what_is_not_asked_for_any_more_is_not_done(setting: Setting) -> None:
    """The configuration changes while the Node is being read."""
    removal = asyncio.create_task(setting.taint._remove(Due(setting.node.metadata.uid, KEY)))
    await asyncio.sleep(0)
    setting.taint.reconfigure(replace(ASKED, remove_node_not_ready_taint=False))
    with pytest.raises(LookAgain, match="not to be removed any more"):
        await removal
    assert setting.asked("patch") == 0
    assert await setting.is_there()


async def test_a_refusal_is_said_once_however_often_it_is_tried(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting.sandbox.faults.answer(403, verb="patch", resource="nodes", times=3)
    async with running(setting.taint):
        await offered_twice(setting)
        await until_async(setting.is_there, lambda there: not there)
    assert setting.asked("patch") == 4
    said = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert len(said) == 1
    assert "stays on the node" in said[0].getMessage()
