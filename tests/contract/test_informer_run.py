"""An informer against every fault that a server or the way to it can have."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client
from localvolume.kube.informer import Informer, unready
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume.kube.objects import PersistentVolume
from tests.contract.support_kube import (
    FaultServer,
    Step,
    answer,
    client_of,
    failure,
    fault_server,
    listing,
    raw,
    status,
    stream,
    volume,
)
from tests.suite.until import until_async


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with fault_server() as running:
        yield running


@pytest.fixture
async def client(server: FaultServer) -> AsyncIterator[Client]:
    async with client_of(server) as opened:
        yield opened


def name_of(thing: PersistentVolume | None) -> str | None:
    return thing.metadata.name if thing else None


@asynccontextmanager
async def running(
    client: Client,
    *,
    hurry: bool = True,
    on_change: Callable[[Any, Any], None] = lambda old, new: None,
    **options: Any,
) -> AsyncIterator[Informer[PersistentVolume]]:
    """An informer at work; with `hurry` its waits are a hundredth of what they are."""
    backoff = Backoff(first=0.005, longest=0.3) if hurry else None
    informer = Informer(client, PERSISTENT_VOLUMES, on_change=on_change, backoff=backoff, **options)
    task = asyncio.create_task(informer.run())
    try:
        yield informer
        assert not task.done(), task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_lists_in_pages_and_watches_from_there(server: FaultServer, client: Client) -> None:
    server.lists = [
        answer(listing(7, volume("a", 1), cont="more")),
        answer(listing(7, volume("b", 2))),
    ]
    server.watches = [stream(("ADDED", volume("c", 8)), then="hold")]
    changes: list[tuple[str | None, str | None]] = []

    def on_change(old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        changes.append((name_of(old), name_of(new)))

    options: dict[str, Any] = {"label_selector": "x=y", "field_selector": "metadata.name=a"}
    async with running(client, on_change=on_change, **options) as informer:
        await until_async(lambda: "c" in informer.items)
        assert informer.synced.is_set()
        assert list(informer.items) == ["a", "b", "c"]
        assert informer.last_contact > 0
        assert informer.bytes_received > 500
        assert informer.events_received == 1
    assert changes == [(None, "a"), (None, "b"), (None, "c")]
    first, second = server.of("list")
    assert (first.query["limit"], second.query["continue"]) == ("500", "more")
    (watch,) = server.of("watch")
    assert watch.query["resourceVersion"] == "7"
    for seen in server.seen:
        assert seen.query["labelSelector"] == "x=y"
        assert seen.query["fieldSelector"] == "metadata.name=a"


async def test_resumes_where_it_was(server: FaultServer, client: Client) -> None:
    bookmark = ("BOOKMARK", {"metadata": {"resourceVersion": "30"}})
    server.lists = [answer(listing(7))]
    server.watches = [
        stream(("ADDED", volume("a", 8))),
        stream(("ADDED", volume("b", 9)), b'{"type"', then="abort"),
        stream(bookmark, then="abort"),
        stream(then="hold"),
    ]
    async with running(client) as informer:
        await until_async(lambda: server.count("watch") == 4)
        assert set(informer.items) == {"a", "b"}
    assert [seen.query["resourceVersion"] for seen in server.of("watch")] == ["7", "8", "9", "30"]
    assert server.count("list") == 1


EXPIRED: dict[str, Step] = {
    "as an event": stream(("ERROR", status(410, "Expired", "too old")), then="hold"),
    "as an answer": failure(410, "Gone"),
}


@pytest.mark.parametrize("how", EXPIRED)
async def test_lists_again_and_tells_what_it_missed(
    server: FaultServer, client: Client, how: str
) -> None:
    server.lists = [
        answer(listing(7, volume("kept", 1), volume("missed", 2), volume("changed", 3))),
        answer(listing(40, volume("kept", 1), volume("changed", 30), volume("new", 31))),
    ]
    server.watches = [EXPIRED[how], stream(then="hold")]
    changes: list[tuple[str | None, str | None]] = []

    def on_change(old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        changes.append((name_of(old), name_of(new)))

    async with running(client, on_change=on_change) as informer:
        await until_async(lambda: server.count("watch") == 2)
        assert set(informer.items) == {"kept", "changed", "new"}
    assert changes[3:] == [("missed", None), ("changed", "changed"), (None, "new")]
    assert server.of("watch")[1].query["resourceVersion"] == "40"


async def test_a_list_that_expires_between_pages_is_taken_whole(
    server: FaultServer, client: Client
) -> None:
    server.lists = [
        answer(listing(7, volume("a", 1), cont="more")),
        failure(410, "Expired"),
        answer(listing(9, volume("b", 8))),
    ]
    async with running(client) as informer:
        await informer.synced.wait()
        # Nothing of the list that was not complete.
        assert list(informer.items) == ["b"]
    assert "limit" not in server.of("list")[2].query


@pytest.mark.parametrize(
    "fault",
    [
        failure(429, "TooManyRequests"),
        failure(500, "InternalError"),
        failure(403, "Forbidden"),
        failure(404, "NotFound"),
        raw(b"<html>"),
        raw(b'{"items": ['),
    ],
)
async def test_the_first_list_is_tried_until_it_works(
    server: FaultServer, client: Client, fault: Step
) -> None:
    server.lists = [fault, fault, answer(listing(7, volume("a", 1)))]
    async with running(client) as informer:
        await asyncio.wait_for(informer.synced.wait(), 60)
        assert list(informer.items) == ["a"]


STORMS: dict[str, Step] = {
    "clean close": stream(),
    "cut": stream(b'{"type": "ADDED", "obj', then="abort"),
    "replays": stream(("ADDED", volume("a", 8))),
    "500": failure(500, "InternalError"),
    "429": failure(429, "TooManyRequests"),
    "410": failure(410, "Gone"),
    "410 event": stream(("ERROR", status(410, "Expired", "too old"))),
    "403": failure(403, "Forbidden"),
    "400": failure(400, "BadRequest"),
    "not JSON": stream(b"<html>\n"),
}


async def test_never_storms() -> None:
    """Stock watches sent 900 requests a second here; the bound doubles from 0.5 s for us."""

    async def weather(storm: str) -> None:
        async with fault_server() as server, client_of(server) as client:
            server.lists = [answer(listing(7))]
            server.watches = [STORMS[storm]]
            async with running(client, hurry=False):
                await until_async(lambda: server.count("watch"))
                await asyncio.sleep(3)
            # The expectation is 4 rounds; more than 16 has a probability below one in a million.
            assert 1 <= server.count("watch") <= 16, storm
            assert server.count("list") <= server.count("watch") + 1, storm

    async with asyncio.TaskGroup() as all_at_once:
        for storm in STORMS:
            all_at_once.create_task(weather(storm))


async def test_gets_over_a_storm(server: FaultServer, client: Client) -> None:
    server.lists = [answer(listing(7))]
    server.watches = [*STORMS.values(), stream(("ADDED", volume("z", 80)), then="hold")]
    async with running(client) as informer:
        await until_async(lambda: "z" in informer.items)


async def test_retry_after_is_honoured(server: FaultServer, client: Client) -> None:
    server.watches = [
        failure(429, "TooManyRequests", headers={"Retry-After": "1"}),
        stream(then="hold"),
    ]
    async with running(client):
        await until_async(lambda: server.count("watch") == 2)
    first, second = server.of("watch")
    assert second.at - first.at >= 0.95


async def test_a_server_that_was_away(client: Client, server: FaultServer) -> None:
    server.watches = [stream(then="hold")]
    access_url = server.url
    async with client_of(server) as other:
        # Nobody listens there yet.
        object.__setattr__(other.access, "server", "http://127.0.0.1:1")
        async with running(other) as informer:
            await asyncio.sleep(0.05)
            assert not informer.synced.is_set()
            object.__setattr__(other.access, "server", access_url)
            await asyncio.wait_for(informer.synced.wait(), 60)


async def test_a_restored_server_is_listed_again(server: FaultServer, client: Client) -> None:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    late = failure(504, "Timeout", details={"causes": causes})
    server.lists = [answer(listing(70, volume("a", 60))), answer(listing(7, volume("b", 1)))]
    server.watches = [late, stream(then="hold")]
    async with running(client) as informer:
        await until_async(lambda: server.count("watch") == 2)
        assert list(informer.items) == ["b"]


async def test_a_watch_that_lived_is_resumed_at_once(server: FaultServer, client: Client) -> None:
    server.watches = [stream(), stream(), stream(), stream(then="hold")]
    informer = Informer(
        client,
        PERSISTENT_VOLUMES,
        on_change=lambda a, b: None,
        healthy_seconds=0.0,
        backoff=Backoff(first=60, longest=60),
    )
    task = asyncio.create_task(informer.run())
    await until_async(lambda: server.count("watch") == 4)
    task.cancel()


async def test_a_failing_listener_does_not_stop_it(
    server: FaultServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def on_change(old: object, new: object) -> None:
        raise ValueError("mine")

    server.lists = [answer(listing(7, volume("a", 1)))]
    server.watches = [stream(("ADDED", volume("b", 8)), then="hold")]
    with caplog.at_level(logging.ERROR):
        async with running(client, on_change=on_change) as informer:
            await until_async(lambda: len(informer.items) == 2)
    assert "a listener failed on b" in caplog.text


async def test_an_own_write_is_there_before_the_watch_brings_it(
    server: FaultServer, client: Client
) -> None:
    server.others = [answer(volume("mine", 9), status=201)]
    server.lists = [answer(listing(7))]
    async with running(client) as informer:
        await informer.synced.wait()
        made = await client.create(PERSISTENT_VOLUMES, {})
        assert informer.apply_own_write(made)
        assert informer.items["mine"] is made


async def test_a_refusal_is_an_answer_until_it_is_taken_back(
    server: FaultServer, client: Client
) -> None:
    """Whoever can do without these objects need not wait for them for ever."""
    server.lists = [failure(500, "InternalError"), failure(403, "Forbidden"), answer(listing(7))]
    server.watches = [stream(then="hold")]
    seen: list[tuple[bool, bool]] = []
    async with running(client) as informer:
        async with asyncio.timeout(60):
            await informer.answered.wait()
        seen.append((informer.refused is not None, informer.synced.is_set()))
        async with asyncio.timeout(60):
            await informer.synced.wait()
        assert seen == [(True, False)]
        assert informer.refused is None


async def test_waits_without_a_warning_for_a_kind_that_the_cluster_lacks(
    server: FaultServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    missing = failure(404, "NotFound")
    server.lists = [missing, missing, answer(listing(7, volume("a", 1))), missing]
    # Its definition is deleted, and so are all of its objects.
    server.watches = [missing]
    changes: list[tuple[str | None, str | None]] = []

    def on_change(old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        changes.append((name_of(old), name_of(new)))

    with caplog.at_level(logging.INFO, logger="localvolume.kube.informer"):
        async with running(client, on_change=on_change, absent_seconds=0.001) as informer:
            await informer.answered.wait()
            assert (informer.absent, informer.refused) == (True, None)
            assert unready(informer) == {}
            await until_async(lambda: changes == [(None, "a"), ("a", None)])
            assert informer.absent
            assert informer.items == {}
    assert {record.levelname for record in caplog.records} == {"INFO"}
    told = [record.getMessage() for record in caplog.records]
    without = "persistentvolumes: this cluster does not have them"
    assert told == [without, "persistentvolumes: this cluster has them now", without]


async def test_objects_that_are_not_to_be_kept_are_as_if_they_were_not_there(
    server: FaultServer, client: Client
) -> None:
    server.lists = [answer(listing(7, volume("mine", 1), volume("other", 2)))]
    server.watches = [
        stream(
            ("ADDED", volume("another", 8)),
            ("MODIFIED", volume("mine", 9, labels={"of": "another"})),
            ("MODIFIED", volume("other", 10, labels={"of": "me"})),
            then="hold",
        )
    ]
    changes: list[tuple[str | None, str | None]] = []

    def on_change(old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        changes.append((name_of(old), name_of(new)))

    def mine(found: PersistentVolume) -> bool:
        return found.metadata.labels.get("of", found.metadata.name) in ("me", "mine")

    async with running(client, on_change=on_change, keep=mine) as informer:
        await until_async(lambda: "other" in informer.items)
        assert list(informer.items) == ["other"]
    assert changes == [(None, "mine"), ("mine", None), (None, "other")]
