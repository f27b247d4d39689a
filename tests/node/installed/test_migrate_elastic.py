"""elastic's local-volume replaced, and put back, by the commands of its page: its driver bindmount.

The kernel of the tests' node has no device-mapper; logical volumes are taken over in the guest
(tests/kernel/inside/test_flex_lvm_life.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from localvolume.volumes.marks import (
    CLAIMED_ANNOTATION,
    ELASTIC_NODE_LABEL,
    FINALIZER,
    NODE_LABEL,
)
from localvolume_lab.controlplane.node import KubeletNode
from tests.cli.support_flexclient import built
from tests.cluster.support_objects import Objects
from tests.node.support_migrate import Walk
from tests.node.support_old import SECONDS, Tenant, claim, storage_class, volume_for, workload
from tests.suite.api import VOLUMES
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "flexclient", "image")

DRIVER = "volumes.k8s.elastic.co/elastic-local"
SOCKET = "/var/run/elastic-local/socket"
ROOT = Path("/mnt/elastic-local-volumes")
CLASS = "elastic-local"


@pytest.fixture
def client(kubelet_node: KubeletNode) -> None:
    """The driver's client, installed as elastic's installer does."""
    place = kubelet_node.plugin_directory / DRIVER.replace("/", "~")
    kubelet_node.run(["mkdir", "-p", str(place)])
    kubelet_node.run(["cp", str(built()), str(place / "elastic-local")])
    kubelet_node.run(["tee", str(place / ".socket")], input=f"{SOCKET}\n")


@pytest.mark.usefixtures("client")
def test_replaced_and_put_back(
    objects: Objects,
    kubelet_node: KubeletNode,
    installable: Path,
    mounted: Callable[..., None],
    tmp_path: Path,
) -> None:
    node = kubelet_node
    # Its kubelet's directory is not at /var/lib/kubelet, and that of its plugins is beside it.
    kubelet = node.plugin_directory.with_name("kubelet")
    mounted(Path("/mnt"), "-t", "tmpfs", "tmpfs")
    objects.make("/api/v1/namespaces", {"metadata": {"name": "elastic-local"}})
    workload(objects, "deployments", "elastic-local", "provisioner")
    workload(objects, "daemonsets", "elastic-local", "driver")
    storage_class(objects, CLASS, DRIVER, volumeBindingMode="Immediate")
    volume, lost = (
        volume_for(
            objects,
            claim(objects, name, CLASS),
            node,
            source={"flexVolume": {"driver": DRIVER, "options": {"sizeBytes": str(16 << 20)}}},
            annotations={"pv.kubernetes.io/provisioned-by": DRIVER},
            labels={ELASTIC_NODE_LABEL: node.name},
        )
        for name in ("ledger", "journal")
    )
    node.run(["mkdir", "-p", str(ROOT / volume)])
    node.run(["tee", str(ROOT / volume / "rows")], input="precious\n")

    walk = Walk(
        "elastic-local-volume",
        tmp_path,
        node,
        installable,
        filled={"its provisioner": "provisioner", "its driver": "driver", "node": node.name},
        places={
            "driver: LVM ": "driver: BINDMOUNT ",
            "--values elastic.yaml": f"--values elastic.yaml --set kubeletDir={kubelet}",
        },
    )
    assert "daemonset.apps/driver" in walk.next("delete daemonset")
    walk.next("helm install")
    for one in (volume, lost):
        until(
            lambda one=one: objects.get(f"{VOLUMES}/{one}")["metadata"]["labels"].get(NODE_LABEL),  # type: ignore[misc]
            lambda label: label == node.name,
            seconds=SECONDS,
        )
    until(
        lambda: objects.get(f"{VOLUMES}/{volume}")["metadata"]["annotations"],
        lambda annotations: CLAIMED_ANNOTATION in annotations,
        seconds=SECONDS,
    )
    # It is listed whose directory is not there, and nobody's else.
    assert [line.split()[0] for line in walk.next("kubectl get pv").splitlines()] == [lost]
    tenant = Tenant(objects, node, "bank", "ledger")
    assert tenant.running() == "precious\n"
    tenant.end()
    until(
        lambda: objects.get(f"{VOLUMES}/{volume}")["metadata"].get("finalizers", []),
        lambda finalizers: FINALIZER in finalizers,
        seconds=SECONDS,
    )

    assert volume in walk.next("uninstall")
    walk.agents_gone()
    walk.next("remove-finalizers")
    assert FINALIZER not in objects.get(f"{VOLUMES}/{volume}")["metadata"]["finalizers"]
    walk.next("sort > known")
    assert (tmp_path / "known").read_text().split() == sorted([volume, lost])
    walk.elsewhere("comm -23 - known", "tests/kernel/inside/test_lvm_migrate.py")
    walk.next("--replicas=1")
    walk.ends()
    assert node.run(["cat", str(ROOT / volume / "rows")]) == "precious\n"
    for one in (volume, lost):
        objects.plane.request("DELETE", f"{VOLUMES}/{one}")
