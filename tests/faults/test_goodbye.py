"""A client that ends leaves nothing open, whatever the server still has to say."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.kinds import NODES
from localvolume_lab.controlplane import ControlPlane

pytestmark = pytest.mark.needs("controlplane")

#: As an agent has: where they end at once, not every socket would hear the server's answer.
_WATCHES = 4


async def _read(watch: AsyncGenerator[Any, None]) -> None:
    async with aclosing(watch):
        async for _ in watch:
            pass


def test_watches_are_cut_without_waiting_for_the_servers_goodbye(
    control_plane: ControlPlane,
) -> None:
    """TLS ends with an answer: a socket that waited for it would be open when the loop has ended,
    and the collector's complaint fails this test."""

    async def life() -> None:
        access = find_access(str(control_plane.kubeconfig))
        async with Client(access, user_agent="goodbye") as client:
            page = await client.list_page(NODES)
            readings = [
                asyncio.create_task(
                    _read(client.watch(NODES, resource_version=page.resource_version))
                )
                for _ in range(_WATCHES)
            ]
            await asyncio.sleep(0.5)
            assert not [reading for reading in readings if reading.done()]
            for reading in readings:
                reading.cancel()
            await asyncio.gather(*readings, return_exceptions=True)

    asyncio.run(life())
    gc.collect()
