"""What the tools that are replaced leave in a cluster: their workloads, classes and volumes."""

from __future__ import annotations

from typing import Any

from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.node.support_pods import BUSYBOX, log_of, make_pod, pod_spec, pod_until
from tests.suite.api import CLAIMS, CLASSES, PODS, VOLUMES
from tests.suite.until import until

SECONDS = 300


def workload(objects: Objects, kind: str, namespace: str, name: str) -> None:
    """A Deployment or DaemonSet of that name, as the tool's own manifest has, that does nothing."""
    labels = {"app": name}
    spec: dict[str, Any] = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "tool", "image": BUSYBOX, "command": ["sleep", "100000"]}],
            },
        },
    }
    path = f"/apis/apps/v1/namespaces/{namespace}/{kind}"
    objects.make(path, {"metadata": {"name": name}, "spec": spec})


def storage_class(objects: Objects, name: str, provisioner: str, **fields: Any) -> None:
    body = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", **fields}
    body["metadata"] = {"name": name, **fields.get("metadata", {})}
    objects.make(CLASSES, body)


def claim(objects: Objects, name: str, class_name: str, **spec: Any) -> dict[str, Any]:
    wanted = {"requests": {"storage": "16Mi"}}
    shared = {"storageClassName": class_name, "accessModes": ["ReadWriteOnce"]}
    return objects.make(
        CLAIMS, {"metadata": {"name": name}, "spec": {**shared, "resources": wanted, **spec}}
    )


def volume_for(
    objects: Objects,
    claimed: dict[str, Any],
    node: KubeletNode,
    *,
    source: dict[str, Any],
    annotations: dict[str, str],
    labels: dict[str, str] | None = None,
    name: str = "",
    capacity: str = "16Mi",
) -> str:
    """A PersistentVolume as a provisioner wrote it for that claim on that node, Bound to it. The
    claim is told its volume, too. Its name."""
    meta = claimed["metadata"]
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}
    spec = {
        "capacity": {"storage": capacity},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": claimed["spec"]["storageClassName"],
        "claimRef": {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            **{key: meta[key] for key in ("namespace", "name", "uid")},
        },
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        **source,
    }
    name = name or f"pvc-{meta['uid']}"
    metadata = {"name": name, "annotations": annotations, "labels": labels or {}}
    objects.make(VOLUMES, {"metadata": metadata, "spec": spec})
    until(
        lambda: objects.get(f"{CLAIMS}/{meta['name']}"),
        lambda one: one["status"]["phase"] == "Bound",
        seconds=SECONDS,
    )
    return name


class Tenant:
    """A pod that stays, with a claim's volume at /data."""

    def __init__(self, objects: Objects, node: KubeletNode, name: str, claim_name: str) -> None:
        self._objects, self._node, self.name = objects, node, name
        script = "touch /data/here; find /data -type f -exec cat {} +; echo ready; sleep 100000"
        spec = pod_spec(script, volumeMounts=[{"name": "data", "mountPath": "/data"}])
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}]
        make_pod(objects, name, spec)

    def running(self) -> str:
        """What it found in its volume, once it runs."""
        pod_until(self._objects, self.name, "Running")
        text: str = until(
            lambda: log_of(self._node.plane, self.name),
            lambda log: log.endswith("ready\n"),
            seconds=SECONDS,
        )
        return text.removesuffix("ready\n")

    def never_stopped(self) -> None:
        (status,) = self._objects.get(f"{PODS}/{self.name}")["status"]["containerStatuses"]
        assert status["restartCount"] == 0
        assert "running" in status["state"]

    def end(self) -> None:
        path = f"{PODS}/{self.name}"
        self._objects.plane.request("DELETE", path, {"gracePeriodSeconds": 0})
        pods = f"{PODS}?fieldSelector=metadata.name={self.name}"
        until(lambda: self._objects.get(pods)["items"], lambda left: not left, seconds=SECONDS)


def bound(objects: Objects, claim_name: str) -> dict[str, Any]:
    """The PersistentVolume that a claim has got."""
    found = until(
        lambda: objects.get(f"{CLAIMS}/{claim_name}"),
        lambda one: one["status"]["phase"] == "Bound",
        seconds=SECONDS,
    )
    return objects.get(f"{VOLUMES}/{found['spec']['volumeName']}")


def volumes_left(objects: Objects, name: str) -> list[Any]:
    listed = objects.get(f"{VOLUMES}?fieldSelector=metadata.name={name}")["items"]
    return [one["metadata"]["name"] for one in listed]
