"""kutti, local-path and OpenEBS hostpath replaced, and put back, by the commands of their pages."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from localvolume.volumes.marks import FINALIZER, NODE_LABEL
from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.node.support_migrate import Walk
from tests.node.support_old import (
    SECONDS,
    Tenant,
    bound,
    claim,
    storage_class,
    volume_for,
    volumes_left,
    workload,
)
from tests.suite.api import CLAIMS, VOLUMES
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "go", "image")

PRECIOUS = "what the tenant wrote before\n"


@dataclass
class Tool:
    """One tool as its own installation leaves it: `root` is where its volumes are."""

    page: str
    provisioner: str
    namespace: str
    deployment: str
    root: str
    blanks: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    class_annotations: dict[str, str] = field(default_factory=dict)
    directory: str = "{name}"
    host_path: bool = False
    also: tuple[str, ...] = ()


TOOLS = [
    Tool(
        "kutti",
        "kuttiproject/provisioner-localvolume",
        "kube-system",
        "kutti-provisioner",
        "/kutti/vols",
        blanks={"kutti": "kutti-provisioner"},
        annotations={
            "kuttiproject.org/provisionedBy": "kuttiproject/provisioner-localvolume",
            "kuttiproject.org/provisionedOn": "{node}",
        },
    ),
    Tool(
        "local-path",
        "rancher.io/local-path",
        "local-path-storage",
        "local-path-provisioner",
        "/opt/local-path-provisioner",
        annotations={"local.path.provisioner/selected-node": "{node}"},
        directory="{name}_default_{claim}",
        host_path=True,
        also=("kubectl -n local-path-storage get configmap",),
    ),
    Tool(
        "openebs-hostpath",
        "openebs.io/local",
        "openebs",
        "openebs-localpv-provisioner",
        "/var/openebs/local",
        labels={"openebs.io/cas-type": "local-hostpath"},
        class_annotations={
            "openebs.io/cas-type": "local",
            "cas.openebs.io/config": "- name: StorageType\n  value: hostpath\n",
        },
    ),
]


def _old_world(tool: Tool, objects: Objects, root: Path) -> None:
    if tool.namespace != "kube-system":
        objects.make("/api/v1/namespaces", {"metadata": {"name": tool.namespace}})
    workload(objects, "deployments", tool.namespace, tool.deployment)
    if tool.page == "local-path":
        entry = {"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": [str(root)]}
        objects.make(
            f"/api/v1/namespaces/{tool.namespace}/configmaps",
            {
                "metadata": {"name": "local-path-config"},
                "data": {"config.json": json.dumps({"nodePathMap": [entry]})},
            },
        )


def _old_volume(
    tool: Tool, objects: Objects, node: KubeletNode, root: Path, name: str
) -> tuple[str, Path]:
    """A bound claim of that name; its PersistentVolume's name and its directory."""
    claimed = claim(objects, name, f"{tool.page}-class")
    volume = f"pvc-{claimed['metadata']['uid']}"
    place = root / tool.directory.format(name=volume, claim=name)
    place.mkdir(mode=0o777)
    (place / "rows").write_text(PRECIOUS)
    source: dict[str, Any] = {"local": {"path": str(place)}}
    if tool.host_path:
        source = {"hostPath": {"path": str(place), "type": "DirectoryOrCreate"}}
    volume_for(
        objects,
        claimed,
        node,
        source=source,
        annotations={
            "pv.kubernetes.io/provisioned-by": tool.provisioner,
            **{key: value.format(node=node.name) for key, value in tool.annotations.items()},
        },
        labels=tool.labels,
    )
    return volume, place


@pytest.mark.parametrize("tool", TOOLS, ids=lambda one: one.page)
def test_replaced_and_put_back(
    tool: Tool,
    objects: Objects,
    kubelet_node: KubeletNode,
    installable: Path,
    tmp_path: Path,
) -> None:
    node, root = kubelet_node, tmp_path / "root"
    root.mkdir(mode=0o755)
    _old_world(tool, objects, root)
    storage_class(
        objects,
        f"{tool.page}-class",
        tool.provisioner,
        metadata={"annotations": tool.class_annotations},
    )
    volume, place = _old_volume(tool, objects, node, root, "ledger")
    kept, kept_place = _old_volume(tool, objects, node, root, "diary")
    tenant = Tenant(objects, node, "bank", "ledger")
    assert tenant.running() == PRECIOUS
    walk = Walk(
        *(tool.page, tmp_path, node, installable),
        filled={**tool.blanks, "its classes": f"{tool.page}-class"},
        places={tool.root: str(root)},
    )

    walk.next("--replicas=0")
    for about in tool.also:
        walk.next(about)
    walk.next("helm install")
    for name in (volume, kept):
        until(
            lambda name=name: (  # type: ignore[misc]
                objects.get(f"{VOLUMES}/{name}")["metadata"].get("labels", {}).get(NODE_LABEL)
            ),
            lambda label: label == node.name,
            seconds=SECONDS,
        )
    looked = walk.next("kubectl get pv")
    assert "pvc-" not in looked
    # A new claim is served, in the same place.
    claim(objects, "new", f"{tool.page}-class")
    newcomer = Tenant(objects, node, "newcomer", "new")
    assert newcomer.running() == ""
    made = bound(objects, "new")
    path = (made["spec"].get("local") or made["spec"]["hostPath"])["path"]
    assert Path(path).parent == root
    # What was made before goes as its policy says, and only when its claim does.
    tenant.never_stopped()
    tenant.end()
    assert (place / "rows").read_text() == PRECIOUS
    objects.plane.request("DELETE", f"{CLAIMS}/ledger")
    until(lambda: volumes_left(objects, volume), lambda left: not left, seconds=SECONDS)
    assert not place.exists()

    assert kept in walk.next("uninstall")
    walk.agents_gone()
    walk.next("remove-finalizers")
    for name in (kept, made["metadata"]["name"]):
        found = objects.get(f"{VOLUMES}/{name}")
        assert FINALIZER not in found["metadata"].get("finalizers", [])
    walk.next("--replicas=1")
    walk.ends()
    newcomer.never_stopped()
    newcomer.end()
    assert (kept_place / "rows").read_text() == PRECIOUS
    for name in (kept, made["metadata"]["name"]):
        objects.plane.request("DELETE", f"{VOLUMES}/{name}")
