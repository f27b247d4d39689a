"""A client that asks before each write: nothing goes out where the answer is no."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from localvolume.kube.access.auth import Access
from localvolume.kube.client import Client, JsonPatch, MergePatch
from localvolume.kube.election.lease import NotLeading
from localvolume.kube.errors import TryAgainLater
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from tests.contract.support_kube import (
    FaultServer,
    answer,
    client_of,
    failure,
    fault_server,
    stream,
    volume,
)

WRITES = {
    "create": lambda client: client.create(PERSISTENT_VOLUMES, volume("a", 1)),
    "merge patch": lambda client: client.patch(PERSISTENT_VOLUMES, "a", MergePatch({})),
    "json patch": lambda client: client.patch(PERSISTENT_VOLUMES, "a", JsonPatch([])),
    "delete": lambda client: client.delete(PERSISTENT_VOLUMES, "a", uid="u"),
}


class Asked:
    """The question: counts, and says no from the `left`-th time on."""

    def __init__(self, left: int | None = None) -> None:
        self.times = 0
        self.left = left

    def __call__(self) -> None:
        self.times += 1
        if self.left is not None and self.times > self.left:
            raise NotLeading("no")


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with fault_server() as running:
        running.others = [answer(volume("a", 7))]
        yield running


@pytest.mark.parametrize("write", WRITES)
async def test_a_no_comes_through_and_nothing_is_sent(server: FaultServer, write: str) -> None:
    told: list[Any] = []

    def on_request(*what: Any) -> None:
        told.append(what)

    asked = Asked(left=0)
    async with client_of(server, before_write=asked, on_request=on_request) as client:
        # Also where there is a connection already.
        await client.get(PERSISTENT_VOLUMES, "a")
        told.clear()
        for _ in range(2):
            with pytest.raises(NotLeading, match="no"):
                await WRITES[write](client)
        # Its connections and turns are given back: it goes on with what may go on.
        await client.get(PERSISTENT_VOLUMES, "a")
    assert asked.times == 2
    assert [seen.method for seen in server.seen] == ["GET", "GET"]
    # A write that was held back is not one that succeeded.
    assert [what[0] for what in told] == ["get"]


@pytest.mark.parametrize("write", WRITES)
async def test_each_write_asks_once(server: FaultServer, write: str) -> None:
    asked = Asked()
    async with client_of(server, before_write=asked) as client:
        await WRITES[write](client)
    assert asked.times == 1
    assert len(server.seen) == 1


async def test_reading_does_not_ask(server: FaultServer) -> None:
    server.watches = [stream()]
    async with client_of(server, before_write=Asked(left=0)) as client:
        await client.get(PERSISTENT_VOLUMES, "a")
        await client.list_page(PERSISTENT_VOLUMES)
        async with aclosing(client.watch(PERSISTENT_VOLUMES, resource_version="1")) as events:
            assert [event async for event in events] == []


async def test_sending_again_asks_again(server: FaultServer) -> None:
    """As after credentials were refused and renewed: time has passed."""

    class Renewable:
        async def get(self) -> str:
            return "token"

        async def renew(self, refused: str) -> bool:
            return True

    server.others = [failure(401, "Unauthorized"), answer(volume("a", 7))]
    asked = Asked(left=1)
    async with client_of(server, token=Renewable(), before_write=asked) as client:
        with pytest.raises(NotLeading):
            await WRITES["create"](client)
    assert (asked.times, len(server.seen)) == (2, 1)


async def test_it_asks_when_the_connection_is_there_not_before() -> None:
    """Connecting may take any time, and a yes from before it would be worth nothing."""

    # The kernel takes the connection; nobody answers the client's hello.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        access = Access(f"https://127.0.0.1:{listening.getsockname()[1]}", source="a test")
        asked = Asked()
        async with Client(access, user_agent="t", timeout=0.3, before_write=asked) as client:
            with pytest.raises(TryAgainLater):
                await WRITES["delete"](client)
    assert asked.times == 0
