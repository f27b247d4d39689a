"""Shared by the tests that attack the promises: a node for one test, as in tests/cluster."""

from tests.cluster.conftest import before_cleaning, impatient, kubelet, lab, objects

__all__ = ["before_cleaning", "impatient", "kubelet", "lab", "objects"]
