"""Shared by the tests of what is installed on a real node: the image of this tree."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from image.build import Built, build
from localvolume_lab.controlplane.node import KubeletNode
from tests.chart.support_helm import provide
from tests.node.support_image import copy_of_tree
from tests.node.support_installed import Installed, serving_on
from tests.node.support_migrate import clear_release


@pytest.fixture(scope="session")
def built_image(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The image of this tree, as `make image` builds it; mark with needs("image").

    That the mirror drops a recorded version stops who releases an image, and not these tests.
    """
    directory = tmp_path_factory.mktemp("image")
    tree = copy_of_tree(directory / "tree")
    (directory / "image.intoto.jsonl").write_text("what is signed of an archive before")
    return build(directory / "image.tar", tree, allow_newest=True)


@pytest.fixture(scope="session")
def provisioner_image(kubelet_node: KubeletNode, built_image: Built) -> str:
    """Its reference, once the node has it: what the chart and deploy/ name runs there as it is."""
    kubelet_node.import_image(built_image.archive)
    return built_image.reference


@pytest.fixture
def installable(kubelet_node: KubeletNode, provisioner_image: str) -> Iterator[Path]:
    """A helm for the chart, whose image the node has; what it installed is taken away again."""
    assert provisioner_image
    yield provide()
    clear_release(kubelet_node)


@pytest.fixture(scope="module")
def installed(
    kubelet_node: KubeletNode,
    provisioner_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installed]:
    """What deploy/install.yaml has, with a pool; a module's own."""
    assert provisioner_image
    with serving_on(kubelet_node, tmp_path_factory.mktemp("installed")) as made:
        yield made
