"""Shared by the tests of faults: a node for one test, on the shared control plane or another."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_agent import Lab, lab_for
from tests.cluster.support_csi import CsiLab, csi_lab_for
from tests.cluster.support_objects import Objects


@pytest.fixture
def lab(control_plane: ControlPlane, unique: str, tmp_path: Path) -> Iterator[Lab]:
    objects = Objects(control_plane)
    try:
        with lab_for(objects, unique, tmp_path) as lab:
            yield lab
    finally:
        objects.clean()


@pytest.fixture
def csi(control_plane: ControlPlane, unique: str, tmp_path: Path) -> Iterator[CsiLab]:
    """The same for an agent that is the CSI driver; the test starts it."""
    objects = Objects(control_plane)
    try:
        with csi_lab_for(objects, unique, tmp_path) as lab:
            yield lab
    finally:
        objects.clean()


@pytest.fixture(scope="module")
def fragile_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that the tests of one module may stop and freeze."""
    with ControlPlane(tmp_path_factory.mktemp("fragile"), scheduler=False) as plane:
        yield plane


@pytest.fixture
def fragile_lab(fragile_plane: ControlPlane, unique: str, tmp_path: Path) -> Iterator[Lab]:
    objects = Objects(fragile_plane)
    try:
        with lab_for(objects, unique, tmp_path) as lab:
            yield lab
    finally:
        objects.clean()
