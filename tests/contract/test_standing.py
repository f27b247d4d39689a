"""What an agent says of its Node, as Events and as `localvolume status` reads them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from localvolume.agent.metrics import AgentMetrics
from localvolume.agent.reload import Reload
from localvolume.cli.seeing.facts import recency
from localvolume.cli.seeing.kinds import EVENTS, SeenEvent
from localvolume.cli.seeing.status.states import current_warnings
from localvolume.dynamic.capacityrole import CapacityRole
from localvolume.dynamic.plan.capacity import CapacityFacts
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.errors import TellTheAdministrator
from localvolume.kube.events import EventRecorder, ObjectRef
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import STORAGE_CAPACITIES
from localvolume.kube.standing import AGAIN_SECONDS
from localvolume.volumes.manifest import NodeFacts
from localvolume_lab.sandbox import Sandbox
from tests.suite.clock import Clock, turns
from tests.suite.until import until_async


@dataclass
class Agent:
    """What an agent has of its configuration, and its Events with a time that the test sets."""

    client: Client
    events: EventRecorder
    directory: Path
    now: float = 1_700_000_000.0

    def write(self, **keys: str) -> None:
        """This is the configuration from now on, half a minute later."""
        self.now += 30
        for old in self.directory.iterdir():
            old.unlink()
        for key, text in keys.items():
            (self.directory / key).write_text(text)

    async def said(self) -> list[SeenEvent]:
        """Newest first."""
        assert await self.events.flush(60)
        found = (await self.client.list_page(EVENTS)).items
        return sorted(found, key=recency, reverse=True)

    async def shown(self) -> list[str]:
        """What status shows of it."""
        return [one.message for one in current_warnings(await self.said())]

    async def shows(self, *keys: str) -> None:
        """Wait until status shows one problem of each of these keys, and no other."""

        async def is_so() -> bool:
            shown = await self.shown()
            return len(shown) == len(keys) and all(
                key in text for key, text in zip(keys, shown, strict=True)
            )

        await until_async(is_so)


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    directory = tmp_path / "config"
    directory.mkdir()
    async with Sandbox(controllers=False) as sandbox:
        access = find_access(str(sandbox.kubeconfig(tmp_path / "kubeconfig")))
        async with Client(access, user_agent="test") as client:
            events = EventRecorder(client, "test", "node-1", clock=lambda: made.now)
            made = Agent(client, events, directory)
            async with events.speaking(60):
                yield made


async def test_what_is_wrong_with_the_configuration_is_shown_for_as_long_as_it_is_so(
    agent: Agent,
) -> None:
    clock = Clock()
    say = partial(agent.events.event, ObjectRef.of_node("node-1"))
    reload = Reload(str(agent.directory), None, AgentMetrics(), say)
    agent.write(first="1")
    running = asyncio.create_task(reload.run())
    try:
        await agent.shows("first")
        agent.write(second="1")
        await agent.shows("second")
        # Nobody touches it for an hour, and the API server has forgotten all Events.
        for one in await agent.said():
            meta = one.metadata
            await agent.client.delete(EVENTS, meta.name, meta.namespace, uid=meta.uid)
        await agent.shows()
        agent.now += AGAIN_SECONDS
        clock.move_on(AGAIN_SECONDS)
        await agent.shows("second")
        agent.write(storageClassMap="{}")
        await agent.shows()
        assert (await agent.said())[0].reason == "ConfigurationChanged"
        clock.move_on(2 * AGAIN_SECONDS)
        agent.write(third="1")
        await agent.shows("third")
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_that_capacities_are_refused_is_said_of_a_node_that_is_there(agent: Agent) -> None:
    clock = Clock()
    informer = Informer(agent.client, STORAGE_CAPACITIES, on_change=lambda *_: None)
    role = CapacityRole(agent.client, informer, "default", agent.events)
    facts = CapacityFacts(NodeFacts("node-1", "uid", "node-1"), [])
    times = 0
    for error, known, more in (
        ("no right", None, 0),
        ("no right", facts, 1),
        ("no right", facts, 0),
        ("another reason", facts, 1),
        # The Node is gone, and made anew.
        ("another reason", None, 0),
        ("another reason", facts, 1),
    ):
        informer.refused = TellTheAdministrator(error)
        role.update(known)
        times += more
        assert sum(one.times for one in await agent.said()) == times, (error, known)
    clock.move_on(AGAIN_SECONDS)
    await until_async(agent.said, lambda said: sum(one.times for one in said) == times + 1)
    role.update(None)
    clock.move_on(AGAIN_SECONDS)
    await turns()
    assert sum(one.times for one in await agent.said()) == times + 1
    role.update(facts)
    agent.now += 30
    informer.refused = None
    role.update(facts)
    assert (await agent.said())[0].reason == "CapacityNotPublishedOver"
    assert await agent.shown() == []
