"""Pods, volumes and Jobs by their JSON, and what they come to on a real node."""

from typing import Any

from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_objects import Objects
from tests.suite.api import CLAIMS, CLASSES, PODS, VOLUMES
from tests.suite.until import until

#: The image that the node of the tests always has.
BUSYBOX = "localvolume.test/busybox:1"

END = "-- this was all --"


def pod_spec(script: str, *, image: str = BUSYBOX, **container: Any) -> dict[str, Any]:
    """A pod's spec with one container, `main`, that runs a shell script once."""
    main = {"name": "main", "image": image, "command": ["sh", "-c", script], **container}
    return {
        "containers": [main],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "dnsPolicy": "Default",
    }


def make_pod(objects: Objects, name: str, spec: dict[str, Any]) -> None:
    objects.make(PODS, {"metadata": {"name": name}, "spec": spec})


def pod_until(objects: Objects, name: str, phase: str) -> dict[str, Any]:
    """The pod once it is in that phase."""
    found: dict[str, Any] = until(
        lambda: objects.get(f"{PODS}/{name}"),
        lambda pod: pod["status"]["phase"] == phase,
        seconds=150,
    )
    return found


def log_of(plane: ControlPlane, name: str) -> str:
    return plane.kubectl("logs", name)


def to_its_end(script: str) -> str:
    """The script, for `said_to_its_end`: it ends as it would without that."""
    return f"(\n{script}\n)\ncode=$?\necho '{END}'\nexit $code"


def said_to_its_end(plane: ControlPlane, name: str) -> str:
    """All that such a script said: its pod may have succeeded before its log is written."""
    log: str = until(lambda: log_of(plane, name), lambda log: log.endswith(f"{END}\n"), seconds=90)
    return log.removesuffix(f"{END}\n").strip()


def log_until(plane: ControlPlane, name: str, line: str) -> str:
    """A pod's log once it has that line."""
    text: str = until(lambda: log_of(plane, name), lambda log: line in log.splitlines(), seconds=90)
    return text


def make_local_volume(objects: Objects, name: str, node: str, path: str, mode: str) -> None:
    """A class, a `local` PersistentVolume on one node, and a claim for it, all named the same."""
    objects.make(
        CLASSES,
        {
            "metadata": {"name": name},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    shared = {"storageClassName": name, "accessModes": ["ReadWriteOnce"], "volumeMode": mode}
    objects.make(
        VOLUMES,
        {
            "metadata": {"name": name},
            "spec": {
                **shared,
                "capacity": {"storage": "1Gi"},
                "persistentVolumeReclaimPolicy": "Retain",
                "local": {"path": path},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            },
        },
    )
    # The scheduler may see that it is available when it has just told the pod that it is not, and
    # tries again after minutes.
    until(
        lambda: objects.get(f"{VOLUMES}/{name}"), lambda one: one["status"]["phase"] == "Available"
    )
    wanted = {"requests": {"storage": "1Gi"}}
    objects.make(CLAIMS, {"metadata": {"name": name}, "spec": {**shared, "resources": wanted}})
