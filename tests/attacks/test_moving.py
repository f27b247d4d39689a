"""While a volume is moved to the CSI driver, its name is free for a moment: who has the token of
another node's agent takes it. The agents have no other rights than the chart gives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import render
from tests.cluster.support_csi import CsiLab
from tests.cluster.support_moving import Moving, register
from tests.cluster.support_rights import TEMPLATES, Rights, of_labs, sample_spec
from tests.suite.api import VOLUMES
from tests.suite.names import CSI, NODE_LABEL, POOL, PROVISIONED_BY
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


@pytest.fixture
def rights(control_plane: ControlPlane, unique: str, tmp_path: Path) -> Iterator[Rights]:
    values = of_labs(tmp_path, {"csi": {"enabled": True}})
    manifests = render(values, release=f"{unique}-m", namespace="default", only=TEMPLATES)
    with Rights(control_plane, manifests) as made:
        yield made


@pytest.fixture
def moving(csi: CsiLab, rights: Rights) -> Moving:
    csi.csi_pool(size=128 * MIB)
    rights.confine(csi)
    cls = csi.storage_class()
    register(csi)
    csi.serve()
    claim = csi.claim(cls, size="32Mi")
    made = Moving(csi, claim, csi.made(claim))
    (csi.path_of(made.before) / "rows").write_text("precious")
    return made


def test_an_agent_takes_it_over_with_the_rights_that_it_has(moving: Moving) -> None:
    done = moving.command("--yes")
    assert (done.returncode, moving.row(done)) == (0, "moved")
    moving.moved()
    assert moving.content() == "precious"


def test_another_node_takes_the_name(csi: CsiLab, rights: Rights, moving: Moving) -> None:
    """What the tenant's pods would get then is not told to be their volume."""
    node = f"{csi.unique}-attacker"
    csi.objects.node(node)
    thief = rights.caller(node)
    assert moving.steps(4)[-1] == "let go"
    spec = sample_spec(
        node,
        local=None,
        csi={"driver": CSI, "volumeHandle": moving.name},
        storageClassName=moving.claim["spec"]["storageClassName"],
        claimRef={
            "namespace": "default",
            "name": moving.claim["metadata"]["name"],
            "uid": moving.claim["metadata"]["uid"],
        },
    )
    metadata = {
        "name": moving.name,
        "labels": {NODE_LABEL: node},
        "annotations": {PROVISIONED_BY: CSI, POOL: "fast/of-the-attacker"},
    }
    body = {"metadata": metadata, "spec": {key: one for key, one in spec.items() if one}}
    assert thief.refusal("POST", VOLUMES, body, really=True) == ""
    done = moving.command("--yes")
    why = "refused its name has an object of another volume, node or claim by now"
    assert (done.returncode, moving.row(done)) == (1, why)
    assert moving.kept()
    csi.settle()
    pool = csi.made_pools[0]
    assert (pool.directory / moving.name / "rows").read_text() == "precious"
    # Once a person has taken that away, the same call goes on.
    taken = moving.now()
    assert taken is not None
    csi.remove(taken)
    csi.until(moving.now, lambda found: found is None)
    done = moving.command("--yes")
    assert (done.returncode, moving.row(done)) == (0, "moved"), done.stderr
    moving.moved()
    assert moving.content() == "precious"
