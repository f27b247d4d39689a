"""On a real node, volumes mean what they mean in a cluster: local ones, raw ones, host paths."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.node.support_pods import log_until, make_local_volume, make_pod, pod_spec, pod_until

pytestmark = pytest.mark.needs("kubelet")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A file of 16 MiB, and the loop device over it."""
    file = tmp_path / "disk"
    with open(file, "wb") as made:
        made.truncate(16 << 20)
    argv = ["losetup", "--find", "--show", str(file)]
    device = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    yield file, device
    subprocess.run(["losetup", "--detach", device], check=True)


def test_a_pod_writes_to_a_local_volume_that_is_mounted_only_in_the_node(
    kubelet_node: KubeletNode,
    objects: Objects,
    mounted: Callable[..., None],
    tmp_path: Path,
    unique: str,
) -> None:
    mounted(tmp_path, "-t", "tmpfs", "tmpfs")
    make_local_volume(objects, unique, kubelet_node.name, str(tmp_path), "Filesystem")
    spec = pod_spec(
        "echo of a pod > /data/file", volumeMounts=[{"name": "data", "mountPath": "/data"}]
    )
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": unique}}]
    make_pod(objects, unique, spec)
    pod_until(objects, unique, "Succeeded")
    assert kubelet_node.run(["cat", f"{tmp_path}/file"]) == "of a pod\n"
    assert os.listdir(tmp_path) == []


@pytest.mark.needs("loop")
def test_a_raw_volume_is_a_device_in_the_pod(
    kubelet_node: KubeletNode, objects: Objects, disk: tuple[Path, str], unique: str
) -> None:
    file, device = disk
    make_local_volume(objects, unique, kubelet_node.name, device, "Block")
    spec = pod_spec(
        "test -b /dev/raw-disk && printf written | dd of=/dev/raw-disk conv=fsync",
        volumeDevices=[{"name": "data", "devicePath": "/dev/raw-disk"}],
    )
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": unique}}]
    make_pod(objects, unique, spec)
    pod_until(objects, unique, "Succeeded")
    with open(file, "rb") as disk_file:
        assert disk_file.read(7) == b"written"


@pytest.mark.parametrize("propagation", ["HostToContainer", "None"])
def test_a_pod_sees_later_mounts_of_the_node_if_it_asked_to(
    kubelet_node: KubeletNode,
    objects: Objects,
    mounted: Callable[..., None],
    tmp_path: Path,
    unique: str,
    propagation: str,
) -> None:
    """As the DaemonSet sees disks that are mounted while it runs."""
    later = tmp_path / "later"
    later.mkdir()
    spec = pod_spec(
        "echo ready; while sleep 0.1; do [ -e /disks/go ] && break; done; "
        "ls /disks/later; echo seen; grep -c /disks/later /proc/self/mountinfo; echo done",
        securityContext={"privileged": True},
        volumeMounts=[{"name": "disks", "mountPath": "/disks", "mountPropagation": propagation}],
    )
    spec["volumes"] = [{"name": "disks", "hostPath": {"path": str(tmp_path), "type": "Directory"}}]
    make_pod(objects, unique, spec)
    pod_until(objects, unique, "Running")
    log_until(objects.plane, unique, "ready")
    mounted(later, "-t", "tmpfs", "tmpfs")
    kubelet_node.run(["touch", f"{later}/file"])
    (tmp_path / "go").touch()
    lines = log_until(objects.plane, unique, "done").splitlines()
    wanted = ["file", "seen", "1"] if propagation == "HostToContainer" else ["seen", "0"]
    assert lines == ["ready", *wanted, "done"]


def test_a_mount_that_a_pod_makes_is_seen_in_the_node(
    kubelet_node: KubeletNode, objects: Objects, tmp_path: Path, unique: str
) -> None:
    inner = tmp_path / "made"
    spec = pod_spec(
        "mkdir /disks/made && mount -t tmpfs tmpfs /disks/made && touch /disks/made/file",
        securityContext={"privileged": True},
        volumeMounts=[
            {"name": "disks", "mountPath": "/disks", "mountPropagation": "Bidirectional"}
        ],
    )
    spec["volumes"] = [{"name": "disks", "hostPath": {"path": str(tmp_path), "type": "Directory"}}]
    make_pod(objects, unique, spec)
    pod_until(objects, unique, "Succeeded")
    assert kubelet_node.run(["ls", str(inner)]) == "file\n"
    assert os.listdir(inner) == []
    kubelet_node.run(["umount", str(inner)])
