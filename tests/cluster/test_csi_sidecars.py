"""The stock sidecars at the agent's socket, in the place of what our own roles do.

A claim that nobody has routed to the node is none of the agent's, so only the sidecar serves it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.cluster.support_csi import CsiLab
from tests.cluster.support_dynamic import Claim, MadePool
from tests.cluster.support_program import Program
from tests.suite import csitools
from tests.suite.names import CSI, HOSTNAME, NODE_LABEL, PROVISIONED_BY, SELECTED
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane", "csi-sidecars")


@contextlib.contextmanager
def _sidecar(lab: CsiLab, name: str, *arguments: str) -> Iterator[Program]:
    """A sidecar beside the agent, as in the agent's pod."""
    argv = [str(csitools.provide(name)), f"--csi-address={lab.socket}", "--v=4", *arguments]
    argv += [f"--kubeconfig={lab.plane.kubeconfig}"]
    program = Program(argv, {"NODE_NAME": lab.node}, lab.directory / f"{name}.log")
    try:
        yield program
        program.check()
    finally:
        program.stop()


@contextlib.contextmanager
def _provisioner(lab: CsiLab) -> Iterator[Program]:
    with _sidecar(lab, "csi-provisioner", "--node-deployment", "--strict-topology") as program:
        yield program


@pytest.fixture
def pool(csi: CsiLab) -> MadePool:
    return csi.csi_pool(backend="image", size=512 * MIB)


def _claim(lab: CsiLab, class_name: str) -> Claim:
    """A claim whose pod the scheduler has put on the node."""
    return lab.claim(class_name, size="32Mi", node=None, annotations={SELECTED: lab.node})


def test_external_provisioner_makes_a_volume_and_removes_it(csi: CsiLab, pool: MadePool) -> None:
    cls = csi.storage_class(provisioner=CSI, waits=True)
    csi.serve()
    with _provisioner(csi):
        claim = _claim(csi, cls)
        volume = csi.made(claim)
        found = csi.read_claim(claim)
        assert found is not None
        assert NODE_LABEL not in found["metadata"].get("labels", {})
        source, name = volume["spec"]["csi"], f"pvc-{claim['metadata']['uid']}"
        assert (source["driver"], source["volumeHandle"]) == (CSI, name)
        # Of ours it has no attributes; this one tells who made the object.
        assert [*source["volumeAttributes"]] == ["storage.kubernetes.io/csiProvisionerIdentity"]
        assert volume["metadata"]["annotations"][PROVISIONED_BY] == CSI
        assert volume["spec"]["capacity"] == {"storage": "32Mi"}
        term = {"key": HOSTNAME, "operator": "In", "values": [csi.node]}
        required = volume["spec"]["nodeAffinity"]["required"]
        assert required == {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
        assert [record for record in pool.records() if name in record]
        csi.settle()
        assert [record for record in pool.records() if name in record]
        csi.delete(claim)
        csi.gone(volume)
        csi.until(lambda: (pool.records(), pool.trash()), lambda left: left == ([], []))


def test_external_resizer_grows_a_volume(csi: CsiLab, pool: MadePool) -> None:
    cls = csi.storage_class(provisioner=CSI, waits=True)
    csi.serve()
    with _provisioner(csi), _sidecar(csi, "csi-resizer"):
        claim = _claim(csi, cls)
        volume = csi.made(claim)
        csi.grow(claim, "64Mi")
        grown = csi.until(
            lambda: csi.read_claim(claim),
            lambda found: found and found["status"]["capacity"] == {"storage": "64Mi"},
        )
        assert grown is not None
        assert not grown["status"].get("conditions")
        found = csi.volume(volume["metadata"]["name"])
        assert found is not None
        assert found["spec"]["capacity"] == {"storage": "64Mi"}
        csi.delete(claim)
        csi.gone(volume)
    csi.until(lambda: (pool.records(), pool.trash()), lambda left: left == ([], []))
