"""Pods with volumes of their own, and the kubelet's calls for them, without a kubelet."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpclib.const import Status

from localvolume_lab.controlplane import RequestFailed
from tests.cluster.support_csicalls import Caller, capability
from tests.cluster.support_objects import Objects
from tests.suite.api import MERGE, PODS
from tests.suite.names import CSI

VOLUME = "cache"


@dataclass
class InlinePod:
    """A pod of the API server on a node, and the kubelet's calls for the one volume of its spec."""

    objects: Objects
    caller: Caller
    name: str
    uid: str
    attributes: Mapping[str, str]

    @property
    def handle(self) -> str:
        """As the kubelet makes it."""
        return f"csi-{hashlib.sha256(f'{self.uid}{VOLUME}'.encode()).hexdigest()}"

    @property
    def target(self) -> Path:
        below = f"pods/{self.uid}/volumes/kubernetes.io~csi/{VOLUME}/mount"
        return self.caller.kubelet / below

    def to_publish(self, **changes: Any) -> dict[str, Any]:
        """What NodePublishVolume is told; the kubelet has made the directory above."""
        self.target.parent.mkdir(parents=True, exist_ok=True)
        kubelets = {
            "csi.storage.k8s.io/ephemeral": "true",
            "csi.storage.k8s.io/pod.name": self.name,
            "csi.storage.k8s.io/pod.namespace": "default",
            "csi.storage.k8s.io/pod.uid": self.uid,
            "csi.storage.k8s.io/serviceAccount.name": "default",
        }
        told = {
            "volume_id": self.handle,
            "target_path": str(self.target),
            "volume_capability": capability(),
            "volume_context": {**self.attributes, **kubelets},
        }
        return told | changes

    def publish(self) -> Path:
        self.caller.call("NodePublishVolume", **self.to_publish())
        return self.target

    def refused(self, **changes: Any) -> tuple[Status, str]:
        return self.caller.refused("NodePublishVolume", **self.to_publish(**changes))

    def unpublish(self) -> None:
        self.caller.call("NodeUnpublishVolume", volume_id=self.handle, target_path=str(self.target))

    def delete(self) -> None:
        """By force: the API server forgets it at once, whatever the node does."""
        with contextlib.suppress(RequestFailed):
            self.objects.plane.request("DELETE", f"{PODS}/{self.name}?gracePeriodSeconds=0")

    def says(self, phase: str) -> None:
        """The kubelet's word of how it goes."""
        path = f"{PODS}/{self.name}/status"
        body = {"status": {"phase": phase}}
        self.objects.plane.request("PATCH", path, body, content_type=MERGE)


def inline_pod(
    objects: Objects, caller: Caller, node: str, name: str, **attributes: str
) -> InlinePod:
    """A pod of that name on the node, whose spec has the volume."""
    source = {"driver": CSI, "volumeAttributes": attributes}
    container = {
        "name": "main",
        "image": "example.com/main",
        "volumeMounts": [{"name": VOLUME, "mountPath": "/cache"}],
    }
    body = {
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [{"name": VOLUME, "csi": source}],
        },
    }
    made = objects.make(PODS, body)
    return InlinePod(objects, caller, name, made["metadata"]["uid"], attributes)
