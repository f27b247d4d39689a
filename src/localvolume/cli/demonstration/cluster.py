"""What the demo makes in a cluster: a Node, two StorageClasses, a namespace, claims."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from localvolume.kube.client import Client, MergePatch
from localvolume.kube.kinds import CLAIMS, NAMESPACES, NODES, STORAGE_CLASSES
from localvolume.kube.objects import PersistentVolumeClaim
from localvolume.volumes import marks

TAINT = "localvolume.dev/demo"


@dataclass(frozen=True)
class Names:
    """How things are called: plainly in a cluster of our own, like nothing else in another's."""

    node: str
    files: str
    raw: str
    namespace: str

    @classmethod
    def plain(cls) -> Names:
        return cls("demo-node", "files", "raw", "demo")

    @classmethod
    def unique(cls, name: str) -> Names:
        """All of them begin with `name` (`localvolume-demo-1f3c`)."""
        return cls(name, f"{name}-files", f"{name}-raw", name)


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


def claim_manifest(name: str, storage_class: str, size: str, *, block: bool) -> dict[str, object]:
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
    client: Client, names: Names, name: str, size: str, *, block: bool = False
) -> PersistentVolumeClaim:
    """Raises ApiError."""
    storage_class = names.raw if block else names.files
    body = claim_manifest(name, storage_class, size, block=block)
    return await client.create(CLAIMS, body, names.namespace)
