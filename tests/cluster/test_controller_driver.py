"""The CSIDriver object that makes the scheduler heed published room: made, and left alone."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from localvolume.controller.controller import keeping_driver
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.election.lease import NotLeading
from localvolume.volumes.marks import DYNAMIC_PROVISIONER
from localvolume_lab.controlplane import RequestFailed
from tests.cluster.support_controller import Ground
from tests.faults.support_proxy import Order, Proxy
from tests.suite.api import DRIVERS
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("controlplane")

PATH = f"{DRIVERS}/{DYNAMIC_PROVISIONER}"


@pytest.fixture(autouse=True)
def none_yet(ground: Ground) -> None:
    with contextlib.suppress(RequestFailed):
        ground.plane.request("DELETE", PATH)


def driver(ground: Ground) -> dict[str, Any] | None:
    return ground.get(DRIVERS, DYNAMIC_PROVISIONER)


def test_it_is_made(ground: Ground) -> None:
    ground.start(resync=1.0)
    found = ground.until(lambda: driver(ground), bool) or {}
    spec = found["spec"]
    assert spec["storageCapacity"] is True
    assert spec["attachRequired"] is False
    assert spec["volumeLifecycleModes"] == ["Persistent"]
    # And again, where somebody took it away.
    ground.plane.request("DELETE", PATH)
    again = ground.until(lambda: driver(ground), bool) or {}
    assert again["metadata"]["uid"] != found["metadata"]["uid"]
    assert not [line for line in ground.log() if "WARNING" in line and "CSIDriver" in line]


@pytest.mark.parametrize("capacity", [True, False])
def test_somebodys_is_left_alone(ground: Ground, capacity: bool) -> None:
    body = {
        "metadata": {"name": DYNAMIC_PROVISIONER, "labels": {"example.com/by": "hand"}},
        "spec": {"storageCapacity": capacity, "podInfoOnMount": True},
    }
    made = ground.plane.request("POST", DRIVERS, body)
    ground.start(resync=0.2)
    if not capacity:
        ground.until(lambda: ground.logged("does not have storageCapacity: true"), bool)
    ground.settle()
    assert driver(ground) == made
    said = [line for line in ground.log() if "does not have storageCapacity: true" in line]
    assert len(said) == (0 if capacity else 1)


@pytest.mark.parametrize("verb", ["get", "post"])
def test_what_it_may_not_do_is_said_once(ground: Ground, proxy: Proxy, verb: str) -> None:
    order = Order("answer", (verb,), "csidrivers", status=403, reason="Forbidden")
    proxy.orders.append(order)
    ground.start(resync=0.2, kubeconfig=proxy.kubeconfig)
    ground.until(lambda: order.met, lambda met: met >= 3)
    ground.settle()
    assert ground.http("/ready") == (200, "ok, leading\n")
    assert len([line for line in ground.log() if "there may be no CSIDriver" in line]) == 1
    assert driver(ground) is None
    proxy.orders.clear()
    ground.until(lambda: driver(ground), bool)


async def test_a_doubt_about_leading_is_waited_out(ground: Ground) -> None:
    """A renewal may be late and then come: that must not end what else the leader does."""
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise NotLeading("not sure")

    access = find_access(str(ground.plane.kubeconfig))
    ground.adopt(PATH)
    async with Client(access, user_agent="test", before_write=check) as client:
        keeping = asyncio.create_task(keeping_driver(client, 0.2).run())
        await until_async(lambda: driver(ground) is not None or keeping.done(), every=0.1)
        assert not keeping.done()
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
    assert asked >= 2
