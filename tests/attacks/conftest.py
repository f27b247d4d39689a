"""Shared by the tests that attack the promises: a node for one test, as in tests/cluster."""

from tests.cluster.conftest import (
    before_cleaning,
    csi,
    dynamic,
    ground,
    impatient,
    kubelet,
    lab,
    objects,
)
from tests.cluster.snapshots.conftest import controller
from tests.host.conftest import (
    driver,
    root,
    target,
)

__all__ = [
    "before_cleaning",
    "controller",
    "csi",
    "driver",
    "dynamic",
    "ground",
    "impatient",
    "kubelet",
    "lab",
    "objects",
    "root",
    "target",
]
