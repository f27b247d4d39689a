"""The static provisioner replaced by the commands of its page, and gone back to, under tenants."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvolume.volumes.marks import FINALIZER, NODE_LABEL
from localvolume.volumes.names import volume_name
from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.node.support_migrate import RELEASE as OURS
from tests.node.support_migrate import Walk
from tests.node.support_old import SECONDS, Tenant, bound, claim, volume_for, volumes_left
from tests.suite.api import CLAIMS, CLASSES, VOLUMES
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "go", "image", "loop", "ext4")

CLASS = "fast-disks"
NAMESPACE = "kube-system"
RELEASE = "local-static-provisioner"


def _release(walk: Walk, directory: Path, values: dict[str, Any]) -> None:
    """Upstream's release as helm keeps it: its values, the StorageClass, and a workload."""
    chart = directory / "upstream"
    (chart / "templates").mkdir(parents=True)
    about = {"apiVersion": "v2", "name": RELEASE, "version": "2.9.0"}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about))
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": CLASS},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    (chart / "templates" / "class.yaml").write_text(yaml.safe_dump(body))
    (directory / "upstream.yaml").write_text(yaml.safe_dump(values))
    walk.run(f"helm -n {NAMESPACE} install {RELEASE} upstream --values upstream.yaml")


def test_replaced_under_a_tenant(
    objects: Objects,
    kubelet_node: KubeletNode,
    installable: Path,
    mounted: Callable[..., None],
    tmp_path: Path,
) -> None:
    node, disks = kubelet_node, tmp_path / "disks"
    for name in ("one", "two"):
        (disks / name).mkdir(parents=True)
        image = tmp_path / f"{name}.img"
        subprocess.run(["truncate", "-s", "24M", image], check=True)
        subprocess.run(["mkfs.ext4", "-q", image], check=True, stdin=subprocess.DEVNULL)
        mounted(disks / name, "-o", "loop", str(image))
    keys = tmp_path / "keys"
    keys.mkdir()
    classes = {CLASS: {"hostDir": str(disks), "mountDir": str(disks), "volumeMode": "Filesystem"}}
    (keys / "storageClassMap").write_text(yaml.safe_dump(classes))
    walk = Walk(
        "static-provisioner",
        tmp_path,
        node,
        installable,
        filled={
            "directory": str(keys),
            "node": node.name,
            "namespace": NAMESPACE,
            "release": RELEASE,
        },
        places={" --set image=<image>": ""},
    )
    values = {
        "classes": [{"name": CLASS, "hostDir": str(disks), "storageClass": True}],
        "nodeLabels": ["kubernetes.io/hostname"],
    }
    objects.adopt(f"{CLASSES}/{CLASS}")  # the chart of another test would not take it over
    _release(walk, tmp_path, values)
    claimed = claim(objects, "ledger", CLASS)
    blocks, size = node.run(["stat", "-f", "-c", "%b %S", str(disks / "one")]).split()
    uid = objects.get(f"/api/v1/nodes/{node.name}")["metadata"]["uid"]
    volume = volume_for(
        objects,
        claimed,
        node,
        name=volume_name("one", node.name, CLASS),
        source={"local": {"path": str(disks / "one")}},
        capacity=f"{int(blocks) * int(size) >> 20}Mi",  # as upstream says it
        annotations={
            "pv.kubernetes.io/provisioned-by": f"local-volume-provisioner-{node.name}-{uid}"
        },
    )
    tenant = Tenant(objects, node, "bank", "ledger")
    assert "ready" not in tenant.running()

    planned = walk.next("localvolume plan")
    assert volume_name("two", node.name, CLASS) in planned
    walk.next("uninstall")
    walk.next("helm install")
    walk.next("localvolume status")
    walk.ends()
    found = until(
        lambda: objects.get(f"{VOLUMES}/{volume}"),
        lambda one: one["metadata"].get("labels", {}).get(NODE_LABEL) == node.name,
        seconds=SECONDS,
    )
    tenant.never_stopped()
    # And the other one is offered, and can be had.
    claim(objects, "diary", CLASS)
    newcomer = Tenant(objects, node, "newcomer", "diary")
    newcomer.running()
    assert bound(objects, "diary")["metadata"]["name"] == volume_name("two", node.name, CLASS)
    # What upstream published is cleaned and offered anew by ours.
    tenant.end()
    objects.plane.request("DELETE", f"{CLAIMS}/ledger")
    until(
        lambda: objects.get(f"{VOLUMES}?fieldSelector=metadata.name={volume}")["items"],
        lambda items: bool(items) and items[0]["metadata"]["uid"] != found["metadata"]["uid"],
        seconds=SECONDS,
    )
    again = node.run(["ls", "-A", str(disks / "one")]).split()
    assert again in ([], ["lost+found"])

    _back(objects, node, installable, newcomer, tmp_path)
    newcomer.end()


def _back(objects: Objects, node: KubeletNode, helm: Path, tenant: Tenant, directory: Path) -> None:
    """docs/going-back.md, under a tenant: all but a finalizer stays as it is."""
    two = bound(objects, "diary")
    rows = Path(two["spec"]["local"]["path"]) / "rows"
    node.run(["tee", str(rows)], input="precious\n")
    back = directory / "back"
    back.mkdir()
    (back / "values.yaml").symlink_to(directory / "values.yaml")
    walk = Walk(
        "../going-back",
        back,
        node,
        helm,
        filled={
            "node": node.name,
            "directory": str(directory / "keys"),
            "namespace": NAMESPACE,
            "release": RELEASE,
            "chart": str(directory / "upstream"),
        },
        places={},
    )
    planned = walk.next("localvolume plan")
    assert two["metadata"]["name"] in planned
    assert " hold " not in planned
    found = until(
        lambda: _volumes(objects, node),
        lambda them: sorted(one["status"]["phase"] for one in them) == ["Available", "Bound"],
    )
    names = [volume["metadata"]["name"] for volume in found]
    listed = walk.next("kubectl get pv")
    assert all(name in listed for name in names)
    assert "Terminating" not in listed
    walk.next("uninstall")
    pods = f"/api/v1/namespaces/{OURS}/pods"
    assert objects.get(pods)["items"] == [], "their agents could still put finalizers back"
    before = _volumes(objects, node)
    said = walk.next("remove-finalizers --all --dry-run")
    assert _verdicts(said, names) == ["would remove"] * 2
    assert _volumes(objects, node) == before
    said = walk.next("remove-finalizers --all")
    assert _verdicts(said, names) == ["removed"] * 2
    for volume in before:
        metadata = volume["metadata"]
        assert FINALIZER in metadata["finalizers"]
        metadata["finalizers"] = [one for one in metadata["finalizers"] if one != FINALIZER]
    after = _volumes(objects, node)
    assert _without_version(after) == _without_version(before)
    # Nobody of ours is left to let an object go: it goes all the same.
    (free,) = [name for name in names if name != two["metadata"]["name"]]
    objects.plane.request("DELETE", f"{VOLUMES}/{free}")
    until(lambda: volumes_left(objects, free), lambda left: not left, seconds=SECONDS)
    walk.next("install")
    walk.ends()
    assert objects.get(f"{CLASSES}/{CLASS}")["provisioner"] == "kubernetes.io/no-provisioner"
    tenant.never_stopped()
    assert bound(objects, "diary")["metadata"]["uid"] == two["metadata"]["uid"]
    assert node.run(["cat", str(rows)]) == "precious\n"


def _verdicts(said: str, names: list[str]) -> list[str]:
    """What `remove-finalizers` says of these, which have no reason."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in said.splitlines()]
    return [row[3] for row in rows if row[0] in names]


def _volumes(objects: Objects, node: KubeletNode) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = objects.get(f"{VOLUMES}?labelSelector={NODE_LABEL}={node.name}")[
        "items"
    ]
    return found


def _without_version(volumes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All that is said of them, but for who wrote it when."""
    bookkeeping = {"resourceVersion", "managedFields"}
    return [
        {
            **volume,
            "metadata": {
                key: value
                for key, value in volume["metadata"].items()
                if key not in bookkeeping and value != []
            },
        }
        for volume in volumes
    ]
