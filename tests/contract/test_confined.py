"""What an agent takes for a proof that it is confined: a refusal, and no other answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from localvolume.agent.confined import FORBIDDEN, Confined
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume_lab.sandbox import Sandbox


@pytest.mark.parametrize("status", [401, 404, 422, 429, 500, 503])
async def test_an_error_of_the_api_is_no_proof(tmp_path: Path, status: int) -> None:
    async with Sandbox(controllers=False) as sandbox:
        kubeconfig = sandbox.kubeconfig(tmp_path / "config")
        fault = sandbox.faults.answer(status, verb="create", times=1)
        refusal = sandbox.faults.answer(403, verb="create", times=None)
        async with Client(find_access(str(kubeconfig)), user_agent="test") as client:
            confined = Confined(client)
            assert "it is not known yet" in confined.problem
            await confined.run()
            assert confined.problem == ""
        # It has gone on until there was an answer that says more.
        assert [fault.hits, refusal.hits] == [1, 1]


async def test_that_somebody_has_the_name_is_no_proof_either(tmp_path: Path) -> None:
    """The API server would have let the agent offer a volume of no node under any other."""
    async with Sandbox(controllers=False) as sandbox:
        kubeconfig = sandbox.kubeconfig(tmp_path / "config")
        async with Client(find_access(str(kubeconfig)), user_agent="test") as client:
            await client.create(PERSISTENT_VOLUMES, FORBIDDEN)
            confined = Confined(client)
            running = asyncio.create_task(confined.run())
            async with asyncio.timeout(60):
                while "it is not known yet" in confined.problem:
                    await asyncio.sleep(0.01)
            assert "the agent is not confined to its node" in confined.problem
            running.cancel()
