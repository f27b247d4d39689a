"""Shared by the tests that run databases: one real node, its pool, our agent and controller."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.controlplane.node import KubeletClient, KubeletNode, make_client
from tests.cluster.support_objects import Objects
from tests.databases.support_ground import Ground, ground_of
from tests.databases.support_images import provide


@pytest.fixture(scope="session")
def kubelet_client(tmp_path_factory: pytest.TempPathFactory) -> KubeletClient:
    return make_client(tmp_path_factory.mktemp("kubelet-client"))


@pytest.fixture(scope="session")
def plane(
    kubelet_client: KubeletClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("plane")
    extra = kubelet_client.apiserver_args
    with ControlPlane(directory, node_controllers=True, extra_apiserver_args=extra) as plane:
        yield plane


@pytest.fixture(scope="session")
def node(
    plane: ControlPlane, kubelet_client: KubeletClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeletNode]:
    name, directory = f"node-{secrets.token_hex(3)}", tmp_path_factory.mktemp("node")
    with KubeletNode(plane, name, directory, client=kubelet_client) as node:
        yield node


@pytest.fixture(scope="session")
def with_image(node: KubeletNode) -> Callable[[str], None]:
    """Gives the node the image of a database, once."""
    there: set[str] = set()

    def give(name: str) -> None:
        if name not in there:
            node.import_image(provide(name))
            there.add(name)

    return give


@pytest.fixture(scope="session")
def ground(
    plane: ControlPlane, node: KubeletNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ground]:
    with ground_of(plane, [node], Path(tmp_path_factory.mktemp("ground"))) as made:
        yield made


@pytest.fixture
def objects(plane: ControlPlane) -> Iterator[Objects]:
    made = Objects(plane)
    yield made
    made.clean()
