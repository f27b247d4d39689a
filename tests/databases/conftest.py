"""Shared by the tests that run databases: real nodes, their pools, our agents and controller.

Each module has a control plane and nodes of its own: an image costs every node twice its size in
memory, and pods are to find no other nodes.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.controlplane.node import KubeletClient, KubeletNode, make_client
from tests.cluster.support_objects import Objects
from tests.databases.support_ground import Ground, ground_of
from tests.node.support_joined import joined_nodes


@pytest.fixture(scope="session")
def kubelet_client(tmp_path_factory: pytest.TempPathFactory) -> KubeletClient:
    return make_client(tmp_path_factory.mktemp("kubelet-client"))


@pytest.fixture(scope="module")
def plane(
    kubelet_client: KubeletClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("plane")
    extra = kubelet_client.apiserver_args
    with ControlPlane(directory, node_controllers=True, extra_apiserver_args=extra) as plane:
        yield plane


@pytest.fixture(scope="module")
def node(
    plane: ControlPlane, kubelet_client: KubeletClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeletNode]:
    name, directory = f"node-{secrets.token_hex(3)}", tmp_path_factory.mktemp("node")
    with KubeletNode(plane, name, directory, client=kubelet_client) as node:
        yield node


@pytest.fixture(scope="module")
def ground(
    plane: ControlPlane, node: KubeletNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    with ground_of(plane, [node], tmp_path_factory.mktemp("ground")) as made:
        yield made


@pytest.fixture(scope="module")
def joined(
    plane: ControlPlane, kubelet_client: KubeletClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    """Four nodes whose pods reach each other, without images: one more than replicas."""
    directory, together = tmp_path_factory.mktemp("joined"), f"node-{secrets.token_hex(3)}"
    with (
        joined_nodes(plane, kubelet_client, directory, together, [], count=4) as nodes,
        ground_of(plane, nodes, tmp_path_factory.mktemp("ground")) as made,
    ):
        yield made


@pytest.fixture
def objects(plane: ControlPlane) -> Iterator[Objects]:
    made = Objects(plane)
    yield made
    made.clean()
