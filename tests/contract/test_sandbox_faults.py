"""Faults on order: the sandbox fails as it was told to, and only so often."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from localvolume_lab.sandbox import Faults, Sandbox
from tests.contract.support_api import ApiUnderTest, volume
from tests.suite.api import MAPS, VOLUMES


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(bookmark_seconds=0.1) as running:
        yield running


@pytest.fixture
async def api(sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    config = sandbox.kubeconfig(tmp_path / "config")
    async with ApiUnderTest("sandbox", sandbox.url, {}, False, "x", config) as under_test:
        yield under_test
        sandbox.faults.clear()


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (409, "Conflict"),
        (410, "Expired"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ],
)
async def test_answers(sandbox: Sandbox, api: ApiUnderTest, status: int, reason: str) -> None:
    fault = sandbox.faults.answer(status, times=2, retry_after=7)
    for _ in range(2):
        answer = await api.get(VOLUMES)
        assert (answer.status, answer.body["reason"]) == (status, reason)
        assert answer.headers["Retry-After"] == "7"
        assert answer.body["details"]["retryAfterSeconds"] == 7
    assert (await api.get(VOLUMES)).status == 200
    assert (fault.hits, fault.left) == (2, 0)
    assert fault.hit.is_set()


async def test_rules_choose_their_requests(sandbox: Sandbox, api: ApiUnderTest) -> None:
    faults = sandbox.faults
    faults.answer(500, verb="create", resource="persistentvolumes", times=None)
    faults.answer(409, verb="patch", name="b", times=None)
    faults.answer(503, verb="get", namespace="default", skip=1)
    assert (await api.post(VOLUMES, volume("a"))).status == 500
    for name in "ab":
        assert (await api.post(MAPS, {"metadata": {"name": name}})).status == 201
    assert (await api.patch(f"{MAPS}/a", {})).status == 200
    assert (await api.patch(f"{MAPS}/b", {})).status == 409
    statuses = [(await api.get(f"{MAPS}/a")).status for _ in range(3)]
    assert statuses == [200, 503, 200]
    faults.clear()
    assert (await api.post(VOLUMES, volume("a"))).status == 201
    asked = [(seen.verb, seen.resource, seen.name) for seen in sandbox.requests]
    assert asked[0] == ("create", "persistentvolumes", "")
    assert asked[3] == ("patch", "configmaps", "a")


async def test_the_first_rule_that_applies(sandbox: Sandbox, api: ApiUnderTest) -> None:
    for status in (500, 503):
        sandbox.faults.answer(status)
    statuses = [(await api.get(VOLUMES)).status for _ in range(3)]
    assert statuses == [500, 503, 200]


async def test_a_dropped_request_was_not_done_a_lost_one_was(
    sandbox: Sandbox, api: ApiUnderTest
) -> None:
    sandbox.faults.drop(verb="create")
    with pytest.raises(aiohttp.ClientConnectionError):
        await api.post(VOLUMES, volume("a"))
    assert (await api.get(f"{VOLUMES}/a")).status == 404
    sandbox.faults.lose(verb="create")
    with pytest.raises(aiohttp.ClientConnectionError):
        await api.post(VOLUMES, volume("a"))
    assert (await api.get(f"{VOLUMES}/a")).status == 200


async def test_a_slow_server(sandbox: Sandbox, api: ApiUnderTest) -> None:
    sandbox.faults.delay(0.15, verb="get")
    sandbox.faults.answer(500, verb="get")
    started = asyncio.get_running_loop().time()
    assert (await api.get(f"{VOLUMES}/a")).status == 500
    assert asyncio.get_running_loop().time() - started >= 0.15


async def test_watches_end_as_ordered(sandbox: Sandbox, api: ApiUnderTest) -> None:
    for name in "abc":
        await api.made(MAPS, {"metadata": {"name": name}})
    sandbox.faults.close_watch(after=2)
    async with api.watch(MAPS) as watch:
        assert len(await watch.rest()) == 2

    sandbox.faults.cut_watch(after=2)
    async with api.watch(MAPS) as watch:
        assert await watch.names(2) == [("ADDED", "a"), ("ADDED", "b")]
        with pytest.raises((aiohttp.ClientError, ValueError)):
            await watch.next()

    sandbox.faults.expire_watch(after=1)
    async with api.watch(MAPS) as watch:
        events = await watch.rest()
    assert [kind for kind, _ in events] == ["ADDED", "ERROR"]
    assert (events[1][1]["code"], events[1][1]["reason"]) == (410, "Expired")

    sandbox.faults.close_watch(resource="nodes")
    async with api.watch(MAPS) as watch:
        assert len(await watch.names(3)) == 3

    sandbox.faults.clear()
    sandbox.faults.answer(429, verb="watch", retry_after=1)
    assert (await api.get(MAPS, watch="1")).status == 429


async def test_a_silent_watch(sandbox: Sandbox, api: ApiUnderTest) -> None:
    await api.made(MAPS, {"metadata": {"name": "a"}})
    sandbox.faults.silence_watch(after=1)
    async with api.watch(MAPS, allowWatchBookmarks="true") as watch:
        assert await watch.names(1) == [("ADDED", "a")]
        await api.made(MAPS, {"metadata": {"name": "b"}})
        with pytest.raises(TimeoutError):
            await watch.next(0.4)
    # A healthy one would have told of both, and have sent bookmarks since.
    async with api.watch(MAPS, allowWatchBookmarks="true") as watch:
        events = [await watch.next() for _ in range(3)]
    assert [kind for kind, _ in events] == ["ADDED", "ADDED", "BOOKMARK"]


async def test_faults_made_before_the_sandbox() -> None:
    faults = Faults()
    faults.answer(500)
    async with Sandbox(faults=faults) as sandbox, aiohttp.ClientSession() as session:
        async with session.get(sandbox.url + VOLUMES) as answer:
            assert answer.status == 500
        async with session.get(sandbox.url + VOLUMES) as answer:
            assert answer.status == 200
