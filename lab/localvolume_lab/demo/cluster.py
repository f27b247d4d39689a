"""What the demo makes in a cluster: a Node, StorageClasses, a namespace, claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from localvolume.kube.client import Client, MergePatch
from localvolume.kube.kinds import CLAIMS, NAMESPACES, NODES, STORAGE_CLASSES
from localvolume.kube.objects import PersistentVolumeClaim
from localvolume.volumes import marks
from localvolume_lab.sandbox.api import Api
from localvolume_lab.sandbox.kinds import CSI_NODES, DAEMON_SETS, PODS, REPLICA_SETS, Resource

TAINT = "localvolume.dev/demo"


@dataclass(frozen=True)
class Names:
    """How things are called: plainly in a cluster of our own, like nothing else in another's."""

    node: str
    files: str
    raw: str
    made: str
    kept: str
    namespace: str

    @classmethod
    def plain(cls) -> Names:
        return cls("demo-node", "files", "raw", "made", "kept", "demo")

    @classmethod
    def unique(cls, name: str) -> Names:
        """All of them begin with `name` (`localvolume-demo-1f3c`)."""
        return cls(
            name, f"{name}-files", f"{name}-raw", f"{name}-made", f"{name}-kept", namespace=name
        )

    @property
    def classes(self) -> tuple[str, ...]:
        return (self.files, self.raw, self.made, self.kept)


async def create_surroundings(client: Client, names: Names, *, raw: bool) -> None:
    """The Node, the classes and the namespace. Raises ApiError.

    The Node has a taint, so that no pod is ever scheduled to it, and says that it is Ready: there
    is no kubelet to say so, and clouds remove Nodes that are not.
    """
    taint = {"key": TAINT, "value": "no-pods", "effect": "NoSchedule"}
    await client.create(
        NODES,
        {
            "metadata": {"name": names.node, "labels": {marks.HOSTNAME_LABEL: names.node}},
            "spec": {"taints": [taint]},
        },
    )
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Demo",
        "message": "no kubelet: a Node of localvolume demo",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    status = MergePatch({"status": {"conditions": [ready]}})
    await client.patch(NODES, names.node, status, subresource="status")
    # Every new Node has the taint of one that is not ready, until somebody takes it away.
    await client.patch(NODES, names.node, MergePatch({"spec": {"taints": [taint]}}))
    for name in (names.files, names.raw) if raw else (names.files,):
        await client.create(
            STORAGE_CLASSES,
            {
                "metadata": {"name": name},
                "provisioner": "kubernetes.io/no-provisioner",
                "reclaimPolicy": "Delete",
                "volumeBindingMode": "Immediate",
            },
        )
    await client.create(NAMESPACES, {"metadata": {"name": names.namespace}})


def made_class(names: Names, undo: str = "") -> dict[str, Any]:
    """A class whose volumes are made for claims, and kept for a time (`1h`) after they are gone."""
    return {
        "metadata": {"name": names.kept if undo else names.made},
        "provisioner": marks.DYNAMIC_PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
        **({"parameters": {"undoPeriod": undo}} if undo else {}),
    }


def claim_manifest(name: str, storage_class: str, size: str, *, block: bool) -> dict[str, Any]:
    """A PersistentVolumeClaim for at least `size` (a Kubernetes quantity)."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "volumeMode": "Block" if block else "Filesystem",
            "resources": {"requests": {"storage": size}},
        },
    }


async def create_claim(
    client: Client,
    names: Names,
    name: str,
    size: str,
    *,
    storage_class: str,
    block: bool = False,
    labels: Mapping[str, str] | None = None,
) -> PersistentVolumeClaim:
    """Raises ApiError."""
    body = claim_manifest(name, storage_class, size, block=block)
    body["metadata"]["labels"] = dict(labels or {})
    return await client.create(CLAIMS, body, names.namespace)


def stand_in(api: Api, names: Names, *, driver: bool) -> None:
    """Make in the sandbox what the chart and a kubelet make in a cluster, and `status` looks for: a
    pod for the agent, one for the controller and, with `driver`, a CSINode.
    """
    _pod(api, names, "agent", DAEMON_SETS)
    _pod(api, names, "controller", REPLICA_SETS)
    if driver:
        drivers = [{"name": marks.CSI_DRIVER, "nodeID": names.node}]
        api.create(CSI_NODES, {"metadata": {"name": names.node}, "spec": {"drivers": drivers}})


def _pod(api: Api, names: Names, name: str, owners: Resource) -> None:
    """A pod of ours, and its owner. The sandbox says of each pod on a Node that it is ready."""
    owner = api.create(owners, {"metadata": {"name": name}}, names.namespace)
    reference = {
        "apiVersion": owners.group_version,
        "kind": owners.kind,
        "name": name,
        "uid": owner["metadata"]["uid"],
    }
    metadata = {
        "name": name,
        "labels": {"app.kubernetes.io/part-of": "local-volume-provisioner"},
        "ownerReferences": [reference],
    }
    containers = [{"name": name, "image": "a-process-of-the-demo"}]
    spec = {"nodeName": names.node, "containers": containers}
    api.create(PODS, {"metadata": metadata, "spec": spec}, names.namespace)
