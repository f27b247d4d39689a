"""A claim moved away from OpenEBS LVM by the commands of its page.

The kernel of the tests' node has no device-mapper: a directory stands for OpenEBS' volume, and a
pool in another for the page's pool of logical volumes. Such pools, beside logical volumes that are
not ours, are in tests/kernel.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.node.support_migrate import Walk
from tests.node.support_old import SECONDS, Tenant, bound, claim, storage_class, volume_for
from tests.node.support_pods import BUSYBOX
from tests.suite.api import CLAIMS, JOBS
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "go", "image")

DRIVER = "local.csi.openebs.io"


def test_a_claim_is_moved(
    objects: Objects, kubelet_node: KubeletNode, installable: Path, tmp_path: Path
) -> None:
    node = kubelet_node
    old, pool = tmp_path / "old", tmp_path / "pool"
    for directory in (old, pool):
        directory.mkdir(mode=0o755)
    (old / "rows").write_text("precious\n")
    (old / "private").write_text("also\n")
    (old / "private").chmod(0o600)
    storage_class(objects, "openebs-lvm", DRIVER)
    volume_for(
        objects,
        claim(objects, "ledger", "openebs-lvm"),
        node,
        source={"local": {"path": str(old)}, "persistentVolumeReclaimPolicy": "Retain"},
        annotations={"pv.kubernetes.io/provisioned-by": DRIVER},
    )
    walk = Walk(
        "openebs-lvm",
        tmp_path,
        node,
        installable,
        filled={
            "namespace": "default",
            "old claim": "ledger",
            "new claim": "ledger-moved",
            "size": "16Mi",
            "any image with cp": BUSYBOX,
        },
        places={
            "backend: lvm": f"hostDir: {pool}",
            "volumeGroup: lvmvg ": "mustBeMounted: false ",
            "fsType: xfs": 'enforce: "none"',
        },
    )
    walk.next("helm install")
    walk.next("kubectl -n <namespace> apply -f move.yaml")
    objects.adopt(f"{CLAIMS}/ledger-moved")
    objects.adopt(f"{JOBS}/move-ledger?propagationPolicy=Background")
    assert walk.next(DRIVER) == "none\n"
    walk.ends()
    moved = Path(bound(objects, "ledger-moved")["spec"]["local"]["path"])
    assert moved.parent == pool
    assert (moved / "rows").read_text() == "precious\n"
    assert (moved / "private").stat().st_mode & 0o777 == 0o600
    assert (old / "rows").read_text() == "precious\n"
    objects.plane.request("DELETE", f"{CLAIMS}/ledger")
    tenant = Tenant(objects, node, "bank", "ledger-moved")
    assert "precious\n" in tenant.running()
    tenant.end()
    objects.plane.request("DELETE", f"{JOBS}/move-ledger?propagationPolicy=Background")
    objects.plane.request("DELETE", f"{CLAIMS}/ledger-moved")
    until(moved.exists, lambda there: not there, seconds=SECONDS)
