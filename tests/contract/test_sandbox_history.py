"""The sandbox's own time: when old versions expire, and that all of it is quick."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from localvolume_lab.sandbox import Sandbox
from localvolume_lab.sandbox.kinds import PERSISTENT_VOLUMES
from tests.contract.support_api import ApiUnderTest, volume
from tests.suite.api import MAPS, VOLUMES
from tests.suite.clock import Clock


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(history_limit=10) as running:
        yield running


@pytest.fixture
async def api(sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    config = sandbox.kubeconfig(tmp_path / "config")
    async with ApiUnderTest("sandbox", sandbox.url, {}, False, "x", config) as under_test:
        yield under_test


async def some(api: ApiUnderTest, count: int, start: int = 0) -> None:
    for i in range(start, start + count):
        await api.made(MAPS, {"metadata": {"name": f"m{i:03}"}})


async def test_old_versions_expire(sandbox: Sandbox, api: ApiUnderTest) -> None:
    """As a real server does, compared by hand: a watch cache starting anew, etcd compacted."""
    await some(api, 3)
    first = (await api.get(MAPS, limit=1)).body["metadata"]
    sandbox.compact()
    await some(api, 1, start=3)

    async with api.watch(MAPS, resourceVersion=first["resourceVersion"]) as watch:
        [(kind, status)] = await watch.rest()
    assert watch.status == 200
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert status["message"].startswith(f"too old resource version: {first['resourceVersion']} (")

    exact = {"resourceVersion": first["resourceVersion"], "resourceVersionMatch": "Exact"}
    answer = await api.get(MAPS, **exact)
    assert (answer.status, answer.body["reason"]) == (410, "Expired")
    assert (await api.get(MAPS, resourceVersion=first["resourceVersion"])).status == 200

    answer = await api.get(MAPS, limit=1, **{"continue": first["continue"]})
    assert (answer.status, answer.body["reason"]) == (410, "Expired")
    # The rest can be had, inconsistently, with the token in the refusal.
    token = answer.body["metadata"]["continue"]
    rest = await api.get(MAPS, **{"continue": token})
    assert [item["metadata"]["name"] for item in rest.body["items"]] == ["m001", "m002", "m003"]


async def test_a_bookmark_comes_before_the_end_also_when_the_end_is_overdue(
    api: ApiUnderTest,
) -> None:
    await some(api, 1)
    version = (await api.get(MAPS)).body["metadata"]["resourceVersion"]
    query = {"resourceVersion": version, "timeoutSeconds": "60", "allowWatchBookmarks": "true"}
    async with api.watch(MAPS, **query) as watch:
        Clock().move_on(61)
        [(kind, body)] = await watch.rest()
    assert (kind, body["metadata"]["resourceVersion"]) == ("BOOKMARK", version)


async def test_who_has_read_everything_misses_nothing(sandbox: Sandbox, api: ApiUnderTest) -> None:
    await some(api, 1)
    async with api.watch(MAPS) as watch:
        assert await watch.names(1) == [("ADDED", "m000")]
        sandbox.compact()
        sandbox.compact()
        await some(api, 1, start=1)
        assert await watch.names(1) == [("ADDED", "m001")]


async def test_history_is_bounded(sandbox: Sandbox, api: ApiUnderTest) -> None:
    await some(api, 1)
    version = (await api.get(MAPS)).body["metadata"]["resourceVersion"]
    await some(api, 10, start=1)
    async with api.watch(MAPS, resourceVersion=version, timeoutSeconds="1") as watch:
        assert len(await watch.rest()) == 10
    await some(api, 30, start=11)
    async with api.watch(MAPS, resourceVersion=version) as watch:
        assert [kind for kind, _ in await watch.rest()] == ["ERROR"]


async def test_it_is_up_at_once_and_quick() -> None:
    # In CPU time, which other work on the machine does not stretch.
    started = time.process_time()
    async with Sandbox() as sandbox:
        assert time.process_time() - started < 2
        started = time.process_time()
        for i in range(1000):
            sandbox.api.create(PERSISTENT_VOLUMES, volume(f"v{i:04}"))
        assert len(list(sandbox.store[PERSISTENT_VOLUMES])) == 1000
        assert time.process_time() - started < 5


async def test_the_same_port_again(api: ApiUnderTest, sandbox: Sandbox) -> None:
    assert (await api.get(VOLUMES)).status == 200
    port = int(sandbox.url.rpartition(":")[2])
    with pytest.raises(OSError, match="address already in use"):
        async with Sandbox(port=port):
            pass
