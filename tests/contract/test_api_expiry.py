"""A version a server no longer keeps: 410 inside the stream, on both.

A real watch cache forgets when its server restarts, so this one is the test's own.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.sandbox import Sandbox
from tests.contract.support_api import ApiUnderTest
from tests.suite.until import until_async

Forgetful = tuple[ApiUnderTest, Callable[[], Awaitable[None]]]


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.needs("controlplane"))])
async def forgetful(
    request: pytest.FixtureRequest, unique: str, tmp_path: Path
) -> AsyncIterator[Forgetful]:
    """A server, and what makes it forget its history."""
    if request.param == "sandbox":
        async with Sandbox() as sandbox:
            config = sandbox.kubeconfig(tmp_path / "config")

            async def compact() -> None:
                sandbox.compact()

            async with ApiUnderTest("sandbox", sandbox.url, {}, False, unique, config) as api:
                yield api, compact
        return
    plane = ControlPlane(tmp_path / "plane", controllers=False, scheduler=False)
    await asyncio.to_thread(plane.start)
    try:

        async def restart() -> None:
            await asyncio.to_thread(plane.stop_apiserver)
            await asyncio.to_thread(plane.start_apiserver)

        trust = ssl.create_default_context(cafile=str(plane.ca_file))
        bearer = {"Authorization": f"Bearer {plane.token}"}
        config = Path(plane.kubeconfig)
        async with ApiUnderTest("real", plane.url, bearer, trust, unique, config) as api:
            yield api, restart
    finally:
        await asyncio.to_thread(plane.stop)


async def test_a_watch_from_a_forgotten_version(forgetful: Forgetful) -> None:
    api, forget = forgetful
    made = await api.made(api.config_maps, {"metadata": {"name": api.unique}})
    version = made["metadata"]["resourceVersion"]
    await api.patch(f"{api.config_maps}/{api.unique}", {"data": {"a": "b"}})
    async with api.watch(api.config_maps, resourceVersion=version) as watch:
        assert await watch.names(1) == [("MODIFIED", api.unique)]
    await forget()

    async def serves() -> bool:
        async with api.watch(api.config_maps, timeoutSeconds=1) as watch:
            return watch.status == 200

    # A real server that is ready says 429 for as long as its cache is not.
    await until_async(serves)
    async with api.watch(api.config_maps, resourceVersion=version) as watch:
        events = await watch.rest()
    assert watch.status == 200
    [(kind, status)] = events
    assert (kind, status["kind"], status["reason"], status["code"]) == (
        "ERROR",
        "Status",
        "Expired",
        410,
    )
    assert status["message"].startswith(f"too old resource version: {version} (")
    # A list gives a version to go on from.
    listed = await api.get(api.config_maps, resourceVersion=version)
    assert listed.status == 200
    version = listed.body["metadata"]["resourceVersion"]
    query = {"resourceVersion": version, "fieldSelector": f"metadata.name={api.unique}"}
    async with api.watch(api.config_maps, **query) as watch:
        await api.delete(f"{api.config_maps}/{api.unique}")
        assert (await watch.next())[0] == "DELETED"
