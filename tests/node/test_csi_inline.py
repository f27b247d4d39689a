"""Pods of a real kubelet with volumes of their own specs: there with the pod, gone with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.node.conftest import Images
from tests.node.support_csi import CsiGround, CsiTenant, csi_ground_on, own_volume
from tests.suite.api import EVENTS, PODS
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "loop", "ext4")


@pytest.fixture(scope="module")
def ground(
    kubelet_node: KubeletNode, images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CsiGround]:
    directory = tmp_path_factory.mktemp("csi-inline")
    with csi_ground_on(kubelet_node, directory, "csi-inline") as made:
        yield made


@pytest.fixture
def tenant(ground: CsiGround, objects: Objects, unique: str) -> Iterator[CsiTenant]:
    made = CsiTenant(ground, objects, unique)
    yield made
    made.end_all()


def all_gone(tenant: CsiTenant) -> None:
    """Nothing of any pod's volume is mounted, nor left in the pool."""
    tenant.unmounted()
    tenant.purged(tenant.ground.images)


def test_it_lives_as_long_as_its_pod(tenant: CsiTenant) -> None:
    pod = tenant.begin_with_own()
    size = int(tenant.within(pod, "df -k /data | tail -n 1").split()[1]) * 1024
    assert abs(size / (32 * MIB) - 1) < 0.15
    tenant.within(pod, "echo mine > /data/file && sync -f /data")
    tenant.end(pod)
    all_gone(tenant)
    # The next pod of the same spec has another, which is empty.
    second = tenant.begin_with_own()
    assert tenant.within(second, "ls /data") == "lost+found"
    tenant.end(second)
    all_gone(tenant)


def test_two_pods_never_share_one(tenant: CsiTenant) -> None:
    one, other = tenant.begin_with_own(), tenant.begin_with_own()
    tenant.within(one, "echo mine > /data/file")
    assert tenant.within(other, "ls /data") == "lost+found"
    tenant.end(one)
    tenant.within(other, "echo mine too > /data/file")
    tenant.end(other)
    all_gone(tenant)


def test_a_user_without_rights_writes_through_the_group(tenant: CsiTenant) -> None:
    pod = tenant.begin_with_own(runAsUser=1000, runAsGroup=1000, fsGroup=4000)
    said = tenant.within(pod, "echo mine > /data/file && stat -c %g /data /data/file")
    assert said.split() == ["4000", "4000"]
    tenant.end(pod)
    all_gone(tenant)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"size": "65Mi"}, "at most 64Mi"),
        ({"size": "1Mi", "path": "/etc"}, "path is not known"),
        ({"size": "1Mi", "csi.storage.k8s.io/ephemeral": "false", "x": "y"}, "x is not known"),
        ({}, "size is missing"),
    ],
)
def test_what_is_not_served_is_said_at_the_pod(
    tenant: CsiTenant, attributes: dict[str, str], words: str
) -> None:
    """What a pod's owner writes in the kubelet's name counts for nothing: the kubelet says it."""
    pod = tenant.ask_for(own_volume(**attributes))
    query = f"{EVENTS}?fieldSelector=involvedObject.name={pod},reason=FailedMount"
    until(
        lambda: " ".join(one["message"] for one in tenant.objects.get(query)["items"]),
        lambda said: words in said,
        seconds=150,
        said=tenant.ground.logs,
    )
    tenant.end(pod)
    all_gone(tenant)


def test_the_agent_dies_and_the_pod_is_deleted_by_force_meanwhile(tenant: CsiTenant) -> None:
    pod = tenant.begin_with_own()
    tenant.within(pod, "echo before > /data/file")
    tenant.ground.kill_agent()
    tenant.ground.plane.request("DELETE", f"{PODS}/{pod}", {"gracePeriodSeconds": 0})
    tenant.ended(pod)
    tenant.ground.start_agent()
    all_gone(tenant)


def test_the_kubelet_is_restarted_under_the_pod(tenant: CsiTenant) -> None:
    pod = tenant.begin_with_own()
    tenant.within(pod, "echo before > /data/file")
    tenant.ground.node.restart_kubelet()
    second = tenant.begin_with_own()
    assert tenant.within(pod, "cat /data/file") == "before"
    for one in (pod, second):
        tenant.end(one)
    all_gone(tenant)


def test_the_kubelet_is_killed_while_the_agent_is_away_and_the_pod_goes(
    tenant: CsiTenant,
) -> None:
    """A kubelet that knows the pod no more finds the mount again by what lies in its directory."""
    pod = tenant.begin_with_own()
    tenant.within(pod, "echo before > /data/file")
    tenant.ground.kill_agent()
    tenant.ground.node.pause_kubelet()
    try:
        tenant.ground.plane.request("DELETE", f"{PODS}/{pod}", {"gracePeriodSeconds": 0})
        tenant.ended(pod)
    finally:
        tenant.ground.node.resume_kubelet()
    tenant.ground.node.restart_kubelet()
    tenant.ground.start_agent()
    all_gone(tenant)
