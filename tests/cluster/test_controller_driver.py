"""The CSIDriver objects, by which the scheduler heeds room and the kubelet mounts: made, kept."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from localvolume.controller.drivers import MANIFESTS, keeping
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.election.lease import NotLeading
from localvolume.volumes.marks import CSI_DRIVER, DYNAMIC_PROVISIONER, OURS
from localvolume_lab.controlplane import RequestFailed
from tests.cluster.support_controller import Ground
from tests.faults.support_proxy import Order, Proxy
from tests.suite.api import DRIVERS
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("controlplane")

PATH = f"{DRIVERS}/{DYNAMIC_PROVISIONER}"


@pytest.fixture(autouse=True)
def none_yet(ground: Ground) -> None:
    for name in OURS:
        with contextlib.suppress(RequestFailed):
            ground.plane.request("DELETE", f"{DRIVERS}/{name}")


def driver(ground: Ground, name: str = DYNAMIC_PROVISIONER) -> dict[str, Any] | None:
    return ground.get(DRIVERS, name)


@pytest.mark.parametrize("name", sorted(OURS))
def test_it_is_made(ground: Ground, name: str) -> None:
    ground.start(resync=1.0)
    found = ground.until(lambda: driver(ground, name), bool) or {}
    spec = found["spec"]
    assert spec["storageCapacity"] is True
    assert spec["attachRequired"] is False
    modes = ["Persistent", "Ephemeral"] if name == CSI_DRIVER else ["Persistent"]
    assert spec["volumeLifecycleModes"] == modes
    # And again, where somebody took it away.
    ground.plane.request("DELETE", f"{DRIVERS}/{name}")
    again = ground.until(lambda: driver(ground, name), bool) or {}
    assert again["metadata"]["uid"] != found["metadata"]["uid"]
    assert not [line for line in ground.log() if "WARNING" in line and "CSIDriver" in line]


def test_what_the_kubelet_is_told(ground: Ground) -> None:
    ground.start()
    found = ground.until(lambda: driver(ground, CSI_DRIVER), bool) or {}
    spec = found["spec"]
    assert spec["podInfoOnMount"] is True
    assert spec["fsGroupPolicy"] == "File"
    assert spec["seLinuxMount"] is False
    assert spec["requiresRepublish"] is False


def test_somebodys_csi_driver_is_left_alone_and_all_that_is_wrong_is_said(ground: Ground) -> None:
    spec = {"volumeLifecycleModes": ["Ephemeral"], "seLinuxMount": True}
    body = {"metadata": {"name": CSI_DRIVER}, "spec": spec}
    made = ground.plane.request("POST", DRIVERS, body)
    ground.start(resync=0.2)
    ground.until(lambda: ground.logged(f"somebody's CSIDriver {CSI_DRIVER}"), bool)
    ground.until(lambda: driver(ground), bool)  # nor does it hold the other one up
    ground.settle()
    assert driver(ground, CSI_DRIVER) == made
    (said,) = [line for line in ground.log() if "somebody's CSIDriver" in line]
    for text in ("storageCapacity: true", "attachRequired: false", "seLinuxMount: true"):
        assert text in said
    assert "volumeLifecycleModes" in said


def test_one_that_is_as_ours_but_somebodys_is_no_problem(ground: Ground) -> None:
    spec = {
        "attachRequired": False,
        "storageCapacity": True,
        "fsGroupPolicy": "None",
        "podInfoOnMount": True,
        "volumeLifecycleModes": ["Ephemeral", "Persistent"],
    }
    ground.plane.request("POST", DRIVERS, {"metadata": {"name": CSI_DRIVER}, "spec": spec})
    ground.start(resync=0.2)
    ground.until(lambda: driver(ground), bool)
    ground.settle()
    assert not [line for line in ground.log() if "somebody's CSIDriver" in line]


def test_one_of_before_pods_had_volumes_of_their_own_is_left_to_people(ground: Ground) -> None:
    """Its modes cannot be changed, and while there is none, pods wait for an attachment."""
    spec = {"attachRequired": False, "storageCapacity": True, "podInfoOnMount": True}
    body = {"metadata": {"name": CSI_DRIVER}, "spec": spec}
    made = ground.plane.request("POST", DRIVERS, body)
    ground.start(resync=0.2)
    ground.until(lambda: ground.logged("does not have Ephemeral"), bool)
    ground.settle()
    assert driver(ground, CSI_DRIVER) == made
    (said,) = [line for line in ground.log() if "somebody's CSIDriver" in line]
    assert "podInfoOnMount" not in said
    ground.plane.request("DELETE", f"{DRIVERS}/{CSI_DRIVER}")
    found = ground.until(lambda: driver(ground, CSI_DRIVER), bool) or {}
    assert found["spec"]["volumeLifecycleModes"] == ["Persistent", "Ephemeral"]


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
    ground.until(lambda: order.met, lambda met: met >= 6)
    ground.settle()
    assert ground.http("/ready") == (200, "ok, leading\n")
    for name in OURS:
        text = f"there may be no CSIDriver {name}"
        assert len([line for line in ground.log() if text in line]) == 1
    assert driver(ground) is None
    proxy.orders.clear()
    ground.until(lambda: driver(ground), bool)


@pytest.mark.parametrize("verb", ["get", "post"])
def test_a_server_that_is_unwell_is_asked_again_when_it_says(
    ground: Ground, proxy: Proxy, verb: str
) -> None:
    """With a status of which the client, unlike of 429 and 503, makes nothing by itself."""
    wait = 6
    order = Order(
        *("answer", (verb,), "csidrivers", len(OURS), 500, "ServerTimeout"),
        headers={"Retry-After": str(wait)},
    )
    proxy.orders.append(order)
    ground.start(kubeconfig=proxy.kubeconfig)
    ground.until(lambda: [driver(ground, name) for name in OURS], all)
    asked = [one.at for one in proxy.seen if (one.verb, one.resource) == (verb, "csidrivers")]
    # Each is asked for once before that.
    assert asked[len(OURS)] - asked[0] >= wait
    for name in OURS:
        (said,) = [line for line in ground.log() if f"there may be no CSIDriver {name}: " in line]
        assert "500 ServerTimeout" in said


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
        task = asyncio.create_task(keeping(client, MANIFESTS[0], 0.2).run())
        await until_async(lambda: driver(ground) is not None or task.done(), every=0.1)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert asked >= 2
