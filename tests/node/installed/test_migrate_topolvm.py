"""A claim moved away from TopoLVM by the commands of its page.

The kernel of the tests' node has no device-mapper: a directory stands for TopoLVM's volume, and a
pool in another for the pool that its lvmd.yaml makes. What is replaced for that, the pools of this
lvmd.yaml and the page's class of one of them, runs in the guest, with real volume groups
(tests/kernel/inside/test_migrate_topolvm.py); how the chart gives the file to the agents is in
tests/chart.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.node.support_migrate import Walk
from tests.node.support_old import SECONDS, Tenant, bound, claim, storage_class, volume_for
from tests.node.support_pods import BUSYBOX
from tests.node.support_topolvm import LVMD
from tests.suite.api import CLAIMS, CLASSES, JOBS
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "go", "image")


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
    objects.make("/api/v1/namespaces", {"metadata": {"name": "topolvm-system"}})
    configmaps = "/api/v1/namespaces/topolvm-system/configmaps"
    body = {"metadata": {"name": "topolvm-lvmd-0"}, "data": {"lvmd.yaml": LVMD}}
    objects.make(configmaps, body)
    storage_class(objects, "topolvm", "topolvm.io")
    volume_for(
        objects,
        claim(objects, "ledger", "topolvm"),
        node,
        source={"local": {"path": str(old)}, "persistentVolumeReclaimPolicy": "Retain"},
        annotations={"pv.kubernetes.io/provisioned-by": "topolvm.io"},
    )
    made = f"pools.made.hostDir={pool},pools.made.enforce=none,pools.made.mustBeMounted=false"
    walk = Walk(
        "topolvm",
        tmp_path,
        node,
        installable,
        filled={
            "lvmd": "topolvm-lvmd-0",
            "namespace": "default",
            "old claim": "ledger",
            "new claim": "ledger-moved",
            "size": "16Mi",
            "any image with cp": BUSYBOX,
        },
        places={
            "--set-file lvmd=lvmd.yaml": f"--set {made}",
            "topolvm.io/device-class: ssd ": "pool: made ",
            "csi.storage.k8s.io/fstype: xfs": "enforce: none",
        },
    )
    walk.next("check-config")
    assert (tmp_path / "lvmd.yaml").read_text() == LVMD
    walk.next("helm install")
    walk.next("kubectl apply -f class.yaml")
    objects.adopt(f"{CLASSES}/logical")
    walk.next("kubectl -n <namespace> apply -f move.yaml")
    objects.adopt(f"{CLAIMS}/ledger-moved")
    objects.adopt(f"{JOBS}/move-ledger?propagationPolicy=Background")
    assert walk.next("topolvm.io") == "none\n"
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
