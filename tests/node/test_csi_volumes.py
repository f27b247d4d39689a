"""Pods of a real kubelet on CSI volumes: the agent is the driver, and no sidecar is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.node.conftest import Images
from tests.node.support_csi import MOST, CsiGround, CsiTenant, csi_ground_on
from tests.suite.api import CLAIMS
from tests.suite.names import CSI, HOSTNAME
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "loop", "ext4")


@pytest.fixture(scope="module")
def ground(
    kubelet_node: KubeletNode, images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CsiGround]:
    directory = tmp_path_factory.mktemp("csi")
    with csi_ground_on(kubelet_node, directory, "csi-volumes") as made:
        yield made


@pytest.fixture
def tenant(ground: CsiGround, objects: Objects, unique: str) -> Iterator[CsiTenant]:
    made = CsiTenant(ground, objects, unique)
    yield made
    made.end_all()


def _gone(tenant: CsiTenant) -> None:
    """The claim's deletion takes all of the volume away."""
    tenant.unmounted()
    tenant.remove()
    tenant.purged(tenant.ground.images)


def _size(tenant: CsiTenant, pod: str) -> int:
    """The bytes of the pod's filesystem."""
    return int(tenant.within(pod, "df -k /data | tail -n 1").split()[1]) * 1024


def test_the_kubelet_knows_the_driver_and_the_node_by_its_label(ground: CsiGround) -> None:
    # It may still take the driver of a ground before away.
    (found,) = until(
        lambda: [one for one in ground.drivers() if one["name"] == CSI], said=ground.logs
    )
    assert found["nodeID"] == ground.node.name
    assert found["topologyKeys"] == [HOSTNAME]
    assert found["allocatable"] == {"count": MOST}


def test_what_a_pod_writes_the_next_one_reads(tenant: CsiTenant) -> None:
    tenant.csi_class()
    tenant.claim()
    said = tenant.run("df -k /data | tail -n 1; echo of red > /data/file; sync -f /data")
    assert abs(int(said.split()[1]) * 1024 / (32 * MIB) - 1) < 0.15
    volume = tenant.volume()
    assert volume["spec"]["csi"]["driver"] == CSI
    assert tenant.ground.node.name not in str(volume["spec"]["csi"])
    assert tenant.run("cat /data/file") == "of red"
    _gone(tenant)


def test_a_device_for_the_pod(tenant: CsiTenant) -> None:
    tenant.csi_class()
    tenant.claim(volumeMode="Block")
    size = tenant.run(
        "test -b /dev/data && blockdev --getsize64 /dev/data && "
        "printf written | dd of=/dev/data conv=fsync 2>/dev/null",
        block=True,
    )
    assert int(size) == 32 * MIB
    assert tenant.run("head -c 7 /dev/data", block=True) == "written"
    _gone(tenant)


def test_a_user_without_rights_writes_through_the_group(tenant: CsiTenant) -> None:
    tenant.csi_class()
    tenant.claim()
    security = {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 4000}
    said = tenant.run("echo mine > /data/file && stat -c %g /data /data/file", security=security)
    assert said.split() == ["4000", "4000"]
    _gone(tenant)


@pytest.mark.needs("xfs")
def test_a_claim_grows_under_a_pod(tenant: CsiTenant) -> None:
    """Of xfs: an ext4 that is mounted grows only with a capability that tests may lack."""
    tenant.csi_class(parameters={"fsType": "xfs"})
    tenant.claim(resources={"requests": {"storage": "320Mi"}})
    pod = tenant.begin()
    tenant.within(pod, "echo kept > /data/file")
    before = _size(tenant, pod)
    tenant.grow("448Mi")
    until(
        lambda: tenant.objects.get(f"{CLAIMS}/{tenant.unique}")["status"],
        lambda status: status["capacity"]["storage"] == "448Mi",
        seconds=150,
        said=tenant.ground.logs,
    )
    # What the filesystem takes for itself grows with it.
    assert abs((_size(tenant, pod) - before) / (128 * MIB) - 1) < 0.15
    assert tenant.within(pod, "cat /data/file") == "kept"
    tenant.end(pod)
    _gone(tenant)


def test_the_kubelet_is_restarted_under_a_pod(tenant: CsiTenant) -> None:
    """It finds the driver again by itself: it starts and ends pods as before."""
    tenant.csi_class()
    tenant.claim()
    pod = tenant.begin()
    tenant.within(pod, "echo before > /data/file")
    tenant.ground.node.restart_kubelet()
    # The Node may be Ready from before: what the new kubelet starts, it can be asked about.
    second = tenant.begin()
    assert tenant.within(pod, "cat /data/file") == "before"
    assert tenant.within(second, "cat /data/file && echo after > /data/file") == "before"
    assert tenant.within(pod, "cat /data/file") == "after"
    for one in (pod, second):
        tenant.end(one)
    _gone(tenant)


def test_the_agent_dies_under_a_pod(tenant: CsiTenant) -> None:
    """The pod knows nothing of it; what it leaves behind the next agent unmounts and removes."""
    tenant.csi_class()
    tenant.claim()
    pod = tenant.begin()
    tenant.within(pod, "echo before > /data/file")
    assert tenant.ground.driver_mounts()
    tenant.ground.kill_agent()
    assert tenant.within(pod, "cat /data/file && echo without > /data/file") == "before"
    # Its end needs the driver.
    tenant.ask_to_end(pod)
    tenant.ground.start_agent()
    tenant.ended(pod)
    assert tenant.run("cat /data/file") == "without"
    _gone(tenant)
