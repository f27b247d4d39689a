"""Node objects without a kubelet, such that the scheduler takes them."""

from collections.abc import Mapping, Sequence
from typing import Any

from localvolume_lab.controlplane.access import Access

_MERGE = "application/merge-patch+json"
_ROOM = {"cpu": "64", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}
_STATUS = {
    "capacity": _ROOM,
    "allocatable": _ROOM,
    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
}


def create_node(
    access: Access, name: str, labels: Mapping[str, str], taints: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """Create one that is Ready, with the hostname label that kubelet sets; raises RequestFailed."""
    path = f"/api/v1/nodes/{name}"
    labels = {"kubernetes.io/hostname": name, **labels}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    access.request("POST", "/api/v1/nodes", node)
    # Admission taints every new node as not ready; the controller that untaints may not run.
    access.request("PATCH", path, {"spec": {"taints": list(taints)}}, content_type=_MERGE)
    answer: dict[str, Any] = access.request(
        "PATCH", f"{path}/status", {"status": _STATUS}, content_type=_MERGE
    )
    return answer
