"""A pod of a real kubelet that may write its volume only so fast, in the kubelet's own groups."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from localvolume.host.cgroups import hierarchy_in
from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.cluster.test_attributes import ATTRIBUTES
from tests.node.conftest import Images
from tests.node.support_csi import CGROUPS, CsiGround, CsiTenant, csi_ground_on
from tests.suite.api import CLAIMS, MERGE, PODS
from tests.suite.names import CSI
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "loop", "ext4", "throttling")

WRITE = "dd if=/dev/zero of=/data/file bs=1048576 count=6 conv=fsync"


@pytest.fixture(scope="module")
def ground(
    kubelet_node: KubeletNode, images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CsiGround]:
    directory = tmp_path_factory.mktemp("csi-limits")
    with csi_ground_on(kubelet_node, directory, "csi-limits") as made:
        yield made


@pytest.fixture
def tenant(ground: CsiGround, objects: Objects, unique: str) -> Iterator[CsiTenant]:
    made = CsiTenant(ground, objects, unique)
    yield made
    made.end_all()


def _class(tenant: CsiTenant, name: str, **parameters: str) -> str:
    name = f"{tenant.unique}-{name}"
    body = {"metadata": {"name": name}, "driverName": CSI, "parameters": parameters}
    tenant.objects.make(ATTRIBUTES, body)
    return name


def _until_limited(tenant: CsiTenant, pod: str, **limits: int) -> None:
    """Wait until those are the limits of the pod, and with v1 of each of its containers."""
    hierarchy = hierarchy_in(CGROUPS)
    uid = tenant.objects.get(f"{PODS}/{pod}")["metadata"]["uid"]
    table = tenant.ground.node.run(["cat", "/proc/self/mountinfo"]).splitlines()
    device = next(line.split()[2] for line in table if uid in line and "kubernetes.io~csi" in line)

    def found() -> list[dict[str, int]]:
        groups = hierarchy.pods().get(uid, [])
        has = [hierarchy.limits(group, device) for group in groups]
        return [{key: count for key, count in one.items() if count} for one in has]

    # The sandbox and the container have groups.
    least = 1 if hierarchy.unified else 3
    until(
        found,
        lambda all_: len(all_) >= least and all(one == limits for one in all_),
        said=tenant.ground.logs,
    )


def test_a_pod_writes_no_faster_than_its_class_says(tenant: CsiTenant) -> None:
    slow = _class(tenant, "slow", writeBytesPerSecond="2Mi")
    free = _class(tenant, "free", readOps="5000")
    tenant.csi_class()
    tenant.claim(volumeAttributesClassName=slow)
    pod = tenant.begin()
    _until_limited(tenant, pod, wbps=2 * MIB)
    began = time.monotonic()
    tenant.within(pod, WRITE)
    assert time.monotonic() - began > 2.0
    claim = f"{CLAIMS}/{tenant.unique}"
    tenant.ground.plane.request(
        "PATCH", claim, {"spec": {"volumeAttributesClassName": free}}, content_type=MERGE
    )
    _until_limited(tenant, pod, riops=5000)
    until(
        lambda: tenant.objects.get(claim)["status"],
        lambda status: status.get("currentVolumeAttributesClassName") == free,
        said=tenant.ground.logs,
    )
    tenant.end(pod)
    tenant.unmounted()
    tenant.remove()
    tenant.purged(tenant.ground.images)
