"""Events: written as client-go does, repeats counted, and nothing ever waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web

from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client
from localvolume.kube.events import EventRecorder, ObjectRef
from tests.contract.support_kube import (
    FaultServer,
    client_of,
    failure,
    fault_server,
    never,
)
from tests.suite.api import EVENTS, MERGE

VOLUME = ObjectRef("PersistentVolume", "pv-a", "uid-a", resource_version="5")
CLAIM = ObjectRef("PersistentVolumeClaim", "c", "uid-c", namespace="work")


async def echo(request: web.BaseRequest) -> web.StreamResponse:
    """As a server that takes every Event."""
    body = await request.json()
    if request.method == "POST":
        return web.json_response(body, status=201)
    name = request.path.rsplit("/", 1)[-1]
    return web.json_response({"metadata": {"name": name}})


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with fault_server() as running:
        running.others = [echo]
        yield running


@pytest.fixture
async def client(server: FaultServer) -> AsyncIterator[Client]:
    async with client_of(server) as opened:
        yield opened


@asynccontextmanager
async def recording(client: Client, **options: Any) -> AsyncIterator[EventRecorder]:
    options.setdefault("backoff", Backoff(first=0.01, longest=0.01))
    recorder = EventRecorder(client, "local-volume-provisioner", "node-1", **options)
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
        assert not task.done(), task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def said(client: Client, *messages: str, **options: Any) -> EventRecorder:
    """The recorder once it is done with these messages about one volume."""
    async with recording(client, **options) as recorder:
        for message in messages:
            recorder.event(VOLUME, "Normal", "R", message)
        assert await recorder.flush(60)
    return recorder


async def test_an_event_is_what_kubectl_describe_looks_for(
    server: FaultServer, client: Client
) -> None:
    async with recording(client, clock=lambda: 1_800_000_000.0) as recorder:
        recorder.event(VOLUME, "Warning", "VolumeFailedDelete", "busy")
        assert await recorder.flush(60)
    (sent,) = server.seen
    assert sent.path == EVENTS
    name = sent.body["metadata"].pop("name")
    assert name.startswith("pv-a.")
    assert sent.body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "default"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "name": "pv-a",
            "uid": "uid-a",
            "resourceVersion": "5",
        },
        "type": "Warning",
        "reason": "VolumeFailedDelete",
        "message": "busy",
        "count": 1,
        "firstTimestamp": "2027-01-15T08:00:00Z",
        "lastTimestamp": "2027-01-15T08:00:00Z",
        "source": {"component": "local-volume-provisioner", "host": "node-1"},
        "reportingComponent": "local-volume-provisioner",
        "reportingInstance": "node-1",
    }


async def test_a_namespaced_object_has_its_events_beside_it(
    server: FaultServer, client: Client
) -> None:
    async with recording(client) as recorder:
        recorder.event(CLAIM, "Normal", "Found", "x")
        assert await recorder.flush(60)
    assert server.seen[0].path == "/api/v1/namespaces/work/events"
    assert server.seen[0].body["involvedObject"]["namespace"] == "work"


async def test_repeats_become_a_count(server: FaultServer, client: Client) -> None:
    now = 1_800_000_000.0
    async with recording(client, clock=lambda: now) as recorder:
        for _ in range(3):
            recorder.event(VOLUME, "Normal", "VolumeDelete", "cleaning")
            now += 60
        recorder.event(VOLUME, "Normal", "VolumeDelete", "another message")
        assert await recorder.flush(60)
        assert recorder.written == 4
    first, second, third, other = server.seen
    name = first.body["metadata"]["name"]
    for seen in (second, third):
        assert (seen.method, seen.path) == ("PATCH", f"/api/v1/namespaces/default/events/{name}")
        assert seen.headers["Content-Type"] == MERGE
    assert third.body["count"] == 3
    assert third.body["lastTimestamp"] == "2027-01-15T08:02:00Z"
    assert other.method == "POST"


async def test_an_expired_event_is_written_anew(server: FaultServer, client: Client) -> None:
    server.others = [echo, failure(404, "NotFound"), echo]
    recorder = await said(client, "m", "m", "m")
    assert (recorder.written, recorder.lost) == (3, 0)
    assert [seen.method for seen in server.seen] == ["POST", "PATCH", "POST", "PATCH"]
    assert server.seen[2].body["count"] == 2


async def test_a_taken_name_is_replaced(server: FaultServer, client: Client) -> None:
    server.others = [failure(409, "AlreadyExists"), echo]
    await said(client, "m")
    names = [seen.body["metadata"]["name"] for seen in server.seen]
    assert len(set(names)) == 2


async def test_after_it_expired_a_taken_name_is_anothers_again(
    server: FaultServer, client: Client
) -> None:
    """The answer that was lost before was one about the Event that expired."""
    lost, expired = failure(504, "Timeout"), failure(404, "NotFound")
    server.others = [echo, lost, expired, failure(409, "AlreadyExists"), echo]
    await said(client, "m", "m")
    assert [seen.method for seen in server.seen] == ["POST", "PATCH", "PATCH", "POST", "POST"]
    assert len({seen.body["metadata"]["name"] for seen in server.seen[3:]}) == 2


async def test_one_whose_answer_was_lost_is_not_written_twice(
    server: FaultServer, client: Client
) -> None:
    server.others = [failure(504, "Timeout"), failure(409, "AlreadyExists"), echo]
    recorder = await said(client, "m", "m")
    assert (recorder.written, recorder.lost) == (2, 0)
    first, again, repeated = server.seen
    name = first.body["metadata"]["name"]
    assert again.body["metadata"]["name"] == name
    assert (repeated.method, repeated.path) == (
        "PATCH",
        f"/api/v1/namespaces/default/events/{name}",
    )
    assert repeated.body["count"] == 2


async def test_a_server_that_is_unwell_is_waited_for_in_order(
    server: FaultServer, client: Client
) -> None:
    server.others = [failure(500, "InternalError"), failure(429, "TooManyRequests"), echo]
    recorder = await said(client, "one", "two")
    assert (recorder.written, recorder.lost) == (2, 0)
    messages = [seen.body["message"] for seen in server.seen]
    assert messages == ["one", "one", "one", "two"]


async def test_last_words_are_written_also_when_it_is_cancelled(
    server: FaultServer, client: Client
) -> None:
    recorder = EventRecorder(client, "local-volume-provisioner", "node-1")
    begun = asyncio.Event()

    async def life() -> None:
        async with recorder.speaking(60):
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                recorder.event(VOLUME, "Normal", "R", "first")
                recorder.event(VOLUME, "Normal", "R", "last")

    living = asyncio.create_task(life())
    await begun.wait()
    living.cancel()
    with pytest.raises(asyncio.CancelledError):
        await living
    assert [seen.body["message"] for seen in server.seen] == ["first", "last"]


async def test_last_words_that_nobody_takes_hold_nothing_up(
    server: FaultServer, client: Client
) -> None:
    server.others = [failure(500, "InternalError")]
    recorder = EventRecorder(client, "local-volume-provisioner", "node-1")

    async def life() -> None:
        async with recorder.speaking(0.2):
            recorder.event(VOLUME, "Normal", "R", "m")
            raise ValueError("mine")

    with pytest.raises(ExceptionGroup) as failed:
        await asyncio.wait_for(life(), 60)
    assert failed.group_contains(ValueError, match="mine")
    assert recorder.written == 0


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (404, "NotFound")])
async def test_a_refused_event_is_dropped_and_logged(
    server: FaultServer, client: Client, caplog: pytest.LogCaptureFixture, code: int, reason: str
) -> None:
    server.others = [failure(code, reason), echo]
    recorder = await said(client, "refused", "taken")
    assert (recorder.written, recorder.lost) == (1, 1)
    assert "refused" in caplog.text
    assert len(server.seen) == 2


async def test_it_gives_up_on_one_event_in_the_end(server: FaultServer, client: Client) -> None:
    server.others = [failure(500, "InternalError")] * 3 + [echo]
    recorder = await said(client, "one", "two", attempts=3)
    assert (recorder.written, recorder.lost) == (1, 1)


async def test_a_full_queue_drops_the_oldest(server: FaultServer, client: Client) -> None:
    recorder = EventRecorder(client, "c", "h", queue_size=3)
    for number in range(5):
        recorder.event(VOLUME, "Normal", "R", f"{number}")
    assert recorder.lost == 2
    task = asyncio.create_task(recorder.run())
    assert await recorder.flush(60)
    task.cancel()
    assert [seen.body["message"] for seen in server.seen] == ["2", "3", "4"]


async def test_flush_does_not_wait_for_ever(server: FaultServer, client: Client) -> None:
    server.others = [never()]
    async with recording(client) as recorder:
        assert await recorder.flush(0.01)
        recorder.event(VOLUME, "Normal", "R", "m")
        assert not await recorder.flush(0.05)


async def test_any_text_and_any_length(server: FaultServer, client: Client) -> None:
    long_name = ObjectRef("PersistentVolume", "x" * 253, "u")
    async with recording(client) as recorder:
        recorder.event(long_name, "Normal", "R", "ü" * 2000)
        recorder.event(VOLUME, "Normal", "R", "a path \udcff of any bytes")
        assert await recorder.flush(60)
    long, odd = (seen.body for seen in server.seen)
    assert len(long["metadata"]["name"]) == 253
    assert 1000 < len(long["message"].encode()) <= 1024
    assert long["message"].endswith("…")
    assert odd["message"] == "a path ? of any bytes"
