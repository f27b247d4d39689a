"""A node that elastic's driver still serves: our agent changes nothing there until it has ended."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.support_flex import FlexLab, flex_lab_for
from tests.cluster.support_objects import Objects

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def lab(objects: Objects, unique: str, tmp_path: Path) -> Iterator[FlexLab]:
    with flex_lab_for(objects, unique, tmp_path) as made:
        yield made


def test_the_client_is_installed_only_once_somebody_answers_it(lab: FlexLab) -> None:
    """W-16: elastic's driver.sh put the client in place before its daemon listened, so that
    kubelet's first calls failed."""
    lab.socket.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(lab.socket))
        other.listen()
        lab.start(wait=False)
        lab.until(lambda: lab.logged("waiting"), bool)
        lab.until(lambda: lab.http("/ready")[0], lambda status: status == 200)
        assert not lab.plugins.exists()
    lab.until((lab.plugins / "localvolume.dev~flexvolume/flexvolume").exists, bool)
    assert lab.call("GET", "/init").ok
