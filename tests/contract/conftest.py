"""The two servers every behaviour is held against: the sandbox and a real control plane."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.sandbox import Sandbox
from tests.contract.support_api import ApiUnderTest


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.needs("controlplane"))])
def plane_under_test(request: pytest.FixtureRequest) -> ControlPlane | None:
    """The real control plane, or None where the sandbox is meant."""
    if request.param == "sandbox":
        return None
    plane: ControlPlane = request.getfixturevalue("control_plane")
    return plane


@pytest.fixture
async def api(
    plane_under_test: ControlPlane | None, unique: str, tmp_path: Path
) -> AsyncIterator[ApiUnderTest]:
    """A server with everything a test needs to talk to it; what the test made goes with it."""
    if plane_under_test is None:
        async with (
            Sandbox() as sandbox,
            ApiUnderTest(
                "sandbox", sandbox.url, {}, False, unique, sandbox.kubeconfig(tmp_path / "config")
            ) as under_test,
        ):
            yield under_test
        return
    headers = {"Authorization": f"Bearer {plane_under_test.token}"}
    context = ssl.create_default_context(cafile=str(plane_under_test.ca_file))
    async with ApiUnderTest(
        "real",
        plane_under_test.url,
        headers,
        context,
        unique,
        Path(plane_under_test.kubeconfig),
    ) as under_test:
        yield under_test


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """Of a sandbox without controllers: nobody else puts right what a test has made."""
    async with Sandbox(controllers=False) as sandbox:
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test") as client:
            yield client
