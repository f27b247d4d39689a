"""The chart with no values at all, on a real node: everything that it installs becomes ready."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume_lab.controlplane.node import KubeletNode
from tests.chart.support_helm import CHART, helm
from tests.node.support_installed import DISCOVERED, NAMESPACE, STATIC, Installed, disk
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("kubelet", "image", "loop", "ext4", "go")


@pytest.fixture
def bare(kubelet_node: KubeletNode, installable: Path) -> Iterator[Installed]:
    """A node that has the image, and a /mnt without anything."""
    assert installable.exists()
    kubelet_node.run(["mount", "-t", "tmpfs", "-o", "mode=755", "bare", "/mnt"])
    try:
        yield Installed(kubelet_node)
    finally:
        kubelet_node.run(["umount", "--recursive", "--lazy", "/mnt"])


def test_an_install_without_values_is_ready_and_offers_a_disk(
    bare: Installed, tmp_path: Path
) -> None:
    told = helm(
        *("--kubeconfig", bare.plane.kubeconfig, "install", NAMESPACE, CHART),
        *("--namespace", NAMESPACE, "--create-namespace"),
        home=tmp_path,
    )
    assert f"StorageClass {STATIC}" in told
    try:
        bare.wait_ready()
        with disk(bare.node, tmp_path / "a.disk", f"{DISCOVERED}/a", 64 * MIB):
            volume = bare.volume_until(STATIC, "Available")
            assert volume["spec"]["local"]["path"] == f"{DISCOVERED}/a"
            bare.kubectl("delete", "pv", volume["metadata"]["name"], "--wait=false")
    except BaseException:
        bare.say()
        raise
