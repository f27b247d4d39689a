"""Shared by the tests on a real node: one kubelet on a control plane of its own."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.controlplane.node import (
    KubeletClient,
    KubeletNode,
    busybox_image,
    make_client,
)
from tests.cluster.support_objects import Objects
from tests.node.support_pods import BUSYBOX
from tests.suite.api import CLAIMS


@pytest.fixture(scope="session")
def kubelet_client(tmp_path_factory: pytest.TempPathFactory) -> KubeletClient:
    return make_client(tmp_path_factory.mktemp("kubelet-client"))


@pytest.fixture(scope="session")
def node_plane(
    kubelet_client: KubeletClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """The control plane that the real nodes belong to; the pods on it run."""
    directory = tmp_path_factory.mktemp("node-plane")
    extra = kubelet_client.apiserver_args
    with ControlPlane(directory, node_controllers=True, extra_apiserver_args=extra) as plane:
        yield plane


class Images(NamedTuple):
    """The references of the images that `kubelet_node` has from its start."""

    busybox: str


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Docker archives of the images, for KubeletNode.import_image."""
    directory = tmp_path_factory.mktemp("images")
    busybox = directory / "busybox.tar"
    busybox_image(busybox, BUSYBOX)
    return [busybox]


@pytest.fixture(scope="session")
def images(kubelet_node: KubeletNode) -> Images:
    return Images(BUSYBOX)


@pytest.fixture(scope="session")
def kubelet_node(
    node_plane: ControlPlane,
    kubelet_client: KubeletClient,
    archives: list[Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KubeletNode]:
    """One real node for the whole run; leave it running, and take away what you mount in it."""
    name = f"node-{secrets.token_hex(3)}"
    directory = tmp_path_factory.mktemp("node")
    with KubeletNode(node_plane, name, directory, client=kubelet_client) as node:
        for image in archives:
            node.import_image(image)
        yield node


@pytest.fixture
def objects(node_plane: ControlPlane) -> Iterator[Objects]:
    made = Objects(node_plane)
    yield made
    made.clean()
    # Another test may call its claim by the same name.
    made.until_gone(CLAIMS)


@pytest.fixture
def mounted(kubelet_node: KubeletNode) -> Iterator[Callable[..., None]]:
    """`mounted(point, *options)` runs mount(8) in the node; it is undone at the test's end."""
    points: list[Path] = []

    def mount(point: Path, *options: str) -> None:
        kubelet_node.run(["mount", *options, str(point)])
        points.append(point)

    yield mount
    for point in reversed(points):
        # Lazily: a pod of the test may still be on its way out.
        kubelet_node.run(["umount", "--lazy", str(point)])
