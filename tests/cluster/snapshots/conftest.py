"""Shared by the tests of snapshots on a real control plane."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_groups import GroupLab, group_lab_for
from tests.cluster.support_objects import Objects
from tests.cluster.support_snapshots import snapshot_controller
from tests.faults.support_proxy import Proxy, proxy_for


@pytest.fixture(scope="module")
def controller(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """The kinds of snapshots and of groups, and who serves them beside the agents."""
    with snapshot_controller(control_plane, tmp_path_factory.mktemp("snapshots")):
        yield


@pytest.fixture
def lab(objects: Objects, unique: str, tmp_path: Path, controller: object) -> Iterator[GroupLab]:
    """A node of one test's own, for an agent whose volumes can be cut, also together."""
    with group_lab_for(objects, unique, tmp_path) as lab:
        yield lab


@pytest.fixture
def proxy(lab: GroupLab, tmp_path: Path) -> Iterator[Proxy]:
    """Between the agents of the lab and the API server."""
    with proxy_for(lab.plane, tmp_path) as proxy:
        lab.kubeconfig = proxy.kubeconfig
        yield proxy
        lab.stop()
