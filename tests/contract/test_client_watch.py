"""A watch: events as they come, and every way in which it can go wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError, ListAgain, TellTheAdministrator, TryAgainLater
from localvolume.kube.kinds import CONFIG_MAPS, PERSISTENT_VOLUMES, Kind
from tests.contract.support_kube import (
    FaultServer,
    client_of,
    failure,
    fault_server,
    status,
    stream,
    volume,
)

BOOKMARK = ("BOOKMARK", {"kind": "PersistentVolume", "metadata": {"resourceVersion": "9"}})


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with fault_server() as running:
        yield running


@pytest.fixture
async def client(server: FaultServer) -> AsyncIterator[Client]:
    async with client_of(server) as opened:
        yield opened


async def collect(client: Client, seconds: float = 60) -> list[tuple[str, str]]:
    """(type, resourceVersion) of each event until the watch ends."""
    events = client.watch(PERSISTENT_VOLUMES, resource_version="1", timeout_seconds=seconds)
    async with asyncio.timeout(60), aclosing(events):
        return [(event.type, event.object.metadata.resource_version) async for event in events]


async def test_events_as_they_come(server: FaultServer, client: Client) -> None:
    added, gone = ("ADDED", volume("a", 2)), ("DELETED", volume("a", 3))
    server.watches = [stream(added, BOOKMARK, gone)]
    assert await collect(client) == [("ADDED", "2"), ("BOOKMARK", "9"), ("DELETED", "3")]
    assert server.seen[0].query == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "1",
        "timeoutSeconds": "60",
    }


async def test_lines_may_come_in_any_pieces(server: FaultServer, client: Client) -> None:
    events = [("ADDED", volume(f"v{n}", n, labels={"pad": "ü" * n})) for n in range(2, 40)]
    lines = [json.dumps({"type": type_, "object": thing}) for type_, thing in events]
    # A blank line between events is nothing.
    text = "\n\n".join(lines).encode() + b"\n"
    size = 317
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    server.watches = [stream(*pieces)]
    assert await collect(client) == [("ADDED", str(n)) for n in range(2, 40)]


async def test_received_bytes_are_counted(server: FaultServer, client: Client) -> None:
    server.watches = [stream(BOOKMARK)]
    sizes: list[int] = []
    events = client.watch(PERSISTENT_VOLUMES, resource_version="1", on_bytes=sizes.append)
    assert [event.type async for event in events] == ["BOOKMARK"]
    assert sum(sizes) == len(json.dumps({"type": BOOKMARK[0], "object": BOOKMARK[1]})) + 1


@pytest.mark.parametrize("kind", [PERSISTENT_VOLUMES, CONFIG_MAPS])
@pytest.mark.parametrize(
    ("code", "expected"), [(410, ListAgain), (500, TryAgainLater), (403, TellTheAdministrator)]
)
async def test_an_error_event_is_its_error(
    server: FaultServer, client: Client, kind: Kind[Any], code: int, expected: type[ApiError]
) -> None:
    # A Status decodes as a ConfigMap, whose fields are all optional, but not as a volume.
    server.watches = [stream(("ERROR", status(code, "Expired", "too old")), then="hold")]
    with pytest.raises(expected, match="too old"):
        async for _ in client.watch(kind, resource_version="1"):
            pass


async def test_refused_before_it_began(server: FaultServer, client: Client) -> None:
    server.watches = [failure(410, "Expired")]
    with pytest.raises(ListAgain):
        await collect(client)


async def test_cut_in_the_middle_of_an_object(server: FaultServer, client: Client) -> None:
    server.watches = [
        stream(b'{"type": "ADDED", "object": {"metad'),
        stream(("ADDED", volume("a", 2)), b'{"type":', then="abort"),
        stream(b'{"type": "ADDED", "object": 5}\n', then="hold"),
        stream(b"<html>\n", then="hold"),
    ]
    with pytest.raises(TryAgainLater, match="middle"):
        await collect(client)
    with pytest.raises(TryAgainLater, match="cut"):
        await collect(client)
    with pytest.raises(TellTheAdministrator, match="cannot read"):
        await collect(client)
    with pytest.raises(TryAgainLater, match="not JSON"):
        await collect(client)


async def test_a_silent_watch_is_cut(server: FaultServer) -> None:
    server.watches = [stream(("ADDED", volume("a", 2)), then="hold")]
    async with client_of(server, watch_grace=0.1) as client:
        with pytest.raises(TryAgainLater, match="silent"):
            await collect(client, seconds=0.1)


async def test_after_a_bookmark_silence_is_borne_for_less(server: FaultServer) -> None:
    server.watches = [stream(BOOKMARK, then="hold")]
    async with client_of(server, bookmark_silence=0.1) as client:
        with pytest.raises(TryAgainLater, match="silent"):
            await collect(client, seconds=600)


async def test_leaving_early_closes_the_connection(server: FaultServer, client: Client) -> None:
    server.watches = [stream(BOOKMARK, then="hold")]
    events = client.watch(PERSISTENT_VOLUMES, resource_version="1")
    async with aclosing(events):
        assert (await anext(events)).type == "BOOKMARK"
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_watches_take_no_turn(server: FaultServer) -> None:
    server.watches = [stream(BOOKMARK, then="hold")]
    async with client_of(server, concurrency=1) as client:
        one = client.watch(PERSISTENT_VOLUMES, resource_version="1")
        two = client.watch(PERSISTENT_VOLUMES, resource_version="1")
        async with aclosing(one), aclosing(two):
            await anext(one)
            await anext(two)
            assert (await client.list_page(PERSISTENT_VOLUMES)).items == []
