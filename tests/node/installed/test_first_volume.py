"""docs/first-volume.md, walked: from `kubectl apply` to two volumes and back to an empty node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest

from localvolume_lab.controlplane.node import KubeletNode
from tests.node.support_installed import Object
from tests.node.support_migrate import Walk, clear_release
from tests.node.support_pods import BUSYBOX
from tests.pages import REPOSITORY
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "image", "loop", "ext4")


@pytest.fixture
def walk(kubelet_node: KubeletNode, provisioner_image: str, tmp_path: Path) -> Iterator[Walk]:
    """A reader on the node, who has the repository, the image, and a /mnt without anything."""
    assert provisioner_image
    kubelet_node.run(["mount", "-t", "tmpfs", "-o", "mode=755", "first", "/mnt"])
    (tmp_path / "deploy").symlink_to(REPOSITORY / "deploy")
    places = {
        "/var/tmp": str(tmp_path),
        "image: busybox": f"image: {BUSYBOX}",
        "--timeout 2m": "--timeout 8m",
        "--timeout 3m": "--timeout 8m",
    }
    reader = Walk(
        "../first-volume", tmp_path, kubelet_node, Path("/nonexistent"), filled={}, places=places
    )
    # The agent may look at the disk just then: a reader who is told so tries again.
    patient = f'for n in $(seq 600); do {which("umount")} "$@" && exit; sleep 0.1; done; exit 1'
    reader.tool_at("umount", "sh", "-c", patient, "umount")
    try:
        yield reader
    finally:
        clear_release(kubelet_node)
        kubelet_node.run(["umount", "--recursive", "--lazy", "/mnt"])


def _volumes(walk: Walk, class_name: str) -> list[Object]:
    found = json.loads(walk.run("kubectl get pv -o json"))["items"]
    return [one for one in found if one["spec"]["storageClassName"] == class_name]


def _phases(volumes: list[Object]) -> list[str]:
    return [volume["status"]["phase"] for volume in volumes]


def test_the_page_is_what_a_reader_sees(walk: Walk) -> None:
    walk.next("apply -f deploy/install.yaml")
    walk.next("mkfs.ext4")
    (offered,) = until(
        lambda: _volumes(walk, "fast-disks"),
        lambda found: _phases(found) == ["Available"],
        seconds=300,
    )
    assert offered["spec"]["capacity"]["storage"] == "973Mi"
    walk.next("mkdir -p /mnt/pools/fast")
    walk.next("patch configmap")
    walk.next("kubectl logs writer")
    # The pod is ready before it has said anything.
    said = until(
        lambda: walk.run("kubectl logs writer"),
        lambda said: "/prepared" in said and "/made" in said,
    )
    sizes = {words[-1]: words[1] for line in said.splitlines() if len(words := line.split()) == 6}
    assert sizes["/made"].endswith("M")
    assert 90 < float(sizes["/made"][:-1]) < 110, said
    assert float(sizes["/prepared"][:-1]) > 900, said
    walk.next("kubectl delete pvc prepared made")
    until(
        lambda: _volumes(walk, "fast-disks"),
        lambda found: (
            _phases(found) == ["Available"]
            and found[0]["metadata"]["uid"] != offered["metadata"]["uid"]
        ),
        seconds=150,
    )
    until(lambda: _volumes(walk, "local"), lambda found: not found, seconds=150)
    told = until(
        lambda: walk.run("kubectl get events -A --field-selector reason=VolumeCleaned"),
        lambda told: offered["metadata"]["name"] in told,
    )
    assert "proved" in told
    walk.next("patch configmap")
    walk.next("umount /mnt/fast-disks/disk-1")
    walk.next("kubectl delete -f deploy/install.yaml")
    walk.ends()
