"""Shared by the tests of snapshots on a real node."""

from collections.abc import Iterator

import pytest

from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_snapshots import snapshot_controller
from tests.node.conftest import Images
from tests.node.support_csi import CsiGround, csi_ground_on


@pytest.fixture(scope="module")
def ground(
    request: pytest.FixtureRequest,
    node_plane: ControlPlane,
    kubelet_node: KubeletNode,
    images: Images,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[CsiGround]:
    """An agent whose volumes can be cut, also together, and who serves snapshots beside it."""
    directory = tmp_path_factory.mktemp("csi")
    unique = request.path.stem.removeprefix("test_").replace("_", "-")
    with (
        snapshot_controller(node_plane, directory),
        csi_ground_on(kubelet_node, directory, unique, fs_type="xfs") as made,
    ):
        yield made
