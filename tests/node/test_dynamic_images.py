"""Pods of a real kubelet on volumes in images: kubelet mounts their link, or gives the device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.node.conftest import Images
from tests.node.support_dynamic import Ground, Tenant, ground_on
from tests.suite.names import NATIVE
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("kubelet", "loop", "ext4")


@pytest.fixture(scope="module")
def ground(
    kubelet_node: KubeletNode, images: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    directory = tmp_path_factory.mktemp("dynamic")
    with ground_on(kubelet_node, directory, "dynamic-images") as made:
        yield made


@pytest.fixture
def tenant(ground: Ground, objects: Objects, unique: str) -> Tenant:
    return Tenant(ground, objects, unique)


def test_df_shows_the_size_and_a_write_beyond_it_fails(tenant: Tenant) -> None:
    """O40, O42 without quotas: a filesystem of its own, which kubelet mounts."""
    tenant.storage_class(NATIVE)
    tenant.claim()
    said = tenant.run(
        "df -k /data | tail -n 1; echo of red > /data/file; "
        "dd if=/dev/zero of=/data/much bs=1M count=40 2>&1 | grep -c 'No space left'; "
        "rm /data/much; sync -f /data"
    )
    table, refused = said.splitlines()
    assert table.split()[5] == "/data"
    assert abs(int(table.split()[1]) * 1024 / (32 * MIB) - 1) < 0.15
    assert abs(int(table.split()[3]) * 1024 / (32 * MIB) - 1) < 0.02
    assert refused == "1"
    volume = tenant.volume()
    assert volume["spec"]["local"]["fsType"] == "ext4"
    assert volume["spec"]["local"]["path"].startswith("/run/localvolume/")
    assert tenant.run("cat /data/file") == "of red"
    tenant.remove()
    tenant.purged(tenant.ground.images)


def test_a_device_for_the_pod(tenant: Tenant) -> None:
    """A Block claim: its successor reads what was written, and the device has the size."""
    tenant.storage_class(NATIVE)
    tenant.claim(volumeMode="Block")
    size = tenant.run(
        "test -b /dev/data && blockdev --getsize64 /dev/data && "
        "printf written | dd of=/dev/data conv=fsync 2>/dev/null",
        block=True,
    )
    assert int(size) == 32 * MIB
    assert tenant.run("head -c 7 /dev/data", block=True) == "written"
    path = tenant.volume()["spec"]["local"]["path"]
    tenant.remove()
    tenant.purged(tenant.ground.images)
    assert tenant.ground.node.run(["sh", "-c", f"test -L {path} || echo gone"]) == "gone\n"


def test_a_user_without_rights_writes_to_the_image(tenant: Tenant) -> None:
    """R38 on a filesystem that kubelet mounts: fsGroup makes it writable."""
    tenant.storage_class(NATIVE)
    tenant.claim()
    security = {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}
    assert tenant.run("echo mine > /data/file && cat /data/file", security=security) == "mine"
    tenant.remove()
    tenant.purged(tenant.ground.images)
