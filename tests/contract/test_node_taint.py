"""The taint of a Node: what must still be so right before it is removed, and what is said."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from localvolume.agent.taint import EVENT_FAILED, EVENT_REMOVED, Due, NotReadyTaint
from localvolume.config.model import Configuration
from localvolume.kube.access.auth import find_access
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.errors import LookAgain
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import EVENTS, NODES
from localvolume.kube.objects import Node
from localvolume.kube.standing import AGAIN_SECONDS
from localvolume_lab.sandbox.sandbox import Sandbox
from tests.suite.clock import LONG, Clock, turns
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
    spec: dict[str, Any]

    def asked(self, verb: str) -> int:
        return sum((one.verb, one.resource) == (verb, "nodes") for one in self.sandbox.requests)

    async def is_there(self) -> bool:
        """Beside those that Kubernetes gives every new Node."""
        node = await self.client.get(NODES, "node")
        return any(taint.key == KEY for taint in node.spec.taints)

    async def said(self) -> list[tuple[str, int]]:
        """The reasons of all Events, and how often each was said."""
        assert await self.taint.events.flush(60)
        found = (await self.client.list_page(EVENTS)).items
        return [(one.reason, one.count or 1) for one in found]


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    async with Sandbox(controllers=False) as sandbox:
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test") as client:
            spec: dict[str, Any] = {"taints": [{"key": KEY, "effect": "NoSchedule"}]}
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
            async with taint.events.speaking(60):
                yield Setting(
                    sandbox=sandbox, client=client, taint=taint, node=node, looks=looks, spec=spec
                )


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
        # The last thing that is done: what is seen to be removed is answered, and said, later.
        said = [(EVENT_FAILED, 1), (EVENT_REMOVED, 1)]
        await until_async(setting.said, lambda found: found == said)
    assert not await setting.is_there()
    assert setting.asked("patch") == 4
    (warning,) = (one for one in caplog.records if one.levelno == logging.WARNING)
    assert "stays on the node" in warning.getMessage()
    clock = Clock()
    clock.move_on(2 * AGAIN_SECONDS)
    await turns()
    assert await setting.said() == said


@contextlib.asynccontextmanager
async def refused_for_an_hour(setting: Setting) -> AsyncIterator[Clock]:
    """The refusal has been said a second time, after an hour."""
    # Real time, of which any part may be drawn otherwise: nothing is tried again meanwhile.
    setting.taint._runner.backoff = lambda: Backoff(LONG, LONG, spread=0.0)
    setting.sandbox.faults.answer(403, verb="patch", resource="nodes", times=1)
    clock = Clock()
    async with running(setting.taint):
        await offered_twice(setting)
        await until_async(setting.said, lambda said: said == [(EVENT_FAILED, 1)])
        clock.move_on(AGAIN_SECONDS)
        await until_async(setting.said, lambda said: said == [(EVENT_FAILED, 2)])
        yield clock


async def test_that_it_was_removed_by_hand_is_said_too(setting: Setting) -> None:
    async with refused_for_an_hour(setting):
        patch = MergePatch({"spec": {"taints": None}})
        await setting.client.patch(NODES, "node", patch)
        await setting.taint._remove(Due(setting.node.metadata.uid, KEY))
        assert await setting.said() == [(EVENT_FAILED, 2), (EVENT_REMOVED, 1)]


async def test_what_is_not_asked_for_any_more_is_not_said_again(setting: Setting) -> None:
    async with refused_for_an_hour(setting) as clock:
        looks = setting.taint.loop.looks
        setting.taint.reconfigure(replace(ASKED, remove_node_not_ready_taint=False))
        await until_async(lambda: setting.taint.loop.looks > looks)
        clock.move_on(AGAIN_SECONDS)
        await turns()
        assert await setting.said() == [(EVENT_FAILED, 2)]


async def test_what_was_said_before_it_was_removed_is_news_again(setting: Setting) -> None:
    """Somebody may set another taint of that key just then, and the next attempt be refused."""
    assert setting.taint._stays.stands("the taint stays: it is refused")
    await setting.taint._remove(Due(setting.node.metadata.uid, KEY))
    assert setting.taint._stays.stands("the taint stays: it is refused")


async def test_a_wait_that_ends_during_a_look_is_not_waited_for_ever(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    taint, due = setting.taint, Due(setting.node.metadata.uid, KEY)
    await taint._look()
    taint.volumes_offered()
    taint.volumes_offered()
    taint._runner.wait(due.uid, due, LONG)
    readings = count(time.monotonic() + LONG - 1, 2.0)
    with monkeypatch.context() as clock:
        clock.setattr(time, "monotonic", lambda: next(readings))
        again = await taint._look()
    assert again > 0 or due.uid in taint._runner.busy


async def test_that_the_node_is_gone_or_another_is_no_refusal(setting: Setting) -> None:
    """The informer tells of it late."""
    await setting.client.delete(NODES, "node", uid=setting.node.metadata.uid)
    async with running(setting.taint):
        await offered_twice(setting)
        await until_async(lambda: setting.asked("get") > 2)
        await setting.client.create(NODES, {"metadata": {"name": "node"}, "spec": setting.spec})
        asked = setting.asked("get")
        await until_async(lambda: setting.asked("get") > asked + 2)
    assert await setting.said() == []
    assert await setting.is_there()
