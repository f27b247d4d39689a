"""Shared by the tests on a real control plane."""

from collections.abc import Iterator

import pytest
from tests.cluster.support_objects import Objects

from localvolume.controlplane import ControlPlane


@pytest.fixture
def objects(control_plane: ControlPlane) -> Iterator[Objects]:
    made = Objects(control_plane)
    yield made
    made.clean()
