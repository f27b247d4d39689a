"""An agent's pod, by what its container has mounted."""

from __future__ import annotations

from typing import Any

import msgspec

from localvolume.kube.podmounts import PodMounts

Mount = dict[str, Any]


def host(at: str, path: str, **mount: Any) -> tuple[Mount, dict[str, Any]]:
    """A directory of the host, mounted there."""
    return {"mountPath": at, **mount}, {"hostPath": {"path": path, "type": ""}}


def scratch(at: str) -> tuple[Mount, dict[str, Any]]:
    return {"mountPath": at}, {"emptyDir": {}}


def pod(*mounts: tuple[Mount, dict[str, Any]], **spec: Any) -> PodMounts:
    """As the API server writes it, with one container that has these mounts."""
    container = {
        "name": "provisioner",
        "image": "none",
        "env": [{"name": "MY_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "volumeMounts": [{"name": f"v{at}", **mount} for at, (mount, _) in enumerate(mounts)],
    }
    body = {
        "metadata": {"name": "agent-1"},
        "spec": {
            "containers": [container],
            "volumes": [{"name": f"v{at}", **source} for at, (_, source) in enumerate(mounts)],
            **spec,
        },
    }
    return msgspec.convert(body, PodMounts)
