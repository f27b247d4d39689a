"""Running the commands in the tests' process, and agents' pods for them to see."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localvolume.cli.main import main
from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_objects import Objects
from tests.suite.api import MERGE, PODS
from tests.suite.until import until

LABELS = {"app.kubernetes.io/part-of": "local-volume-provisioner"}


class Said:
    """What a command answered."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


class Seeing:
    """`ask("status", "-o", "json")` on a control plane."""

    def __init__(self, plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> None:
        self.kubeconfig = str(plane.kubeconfig)
        self._capsys = capsys

    def ask(self, *words: str) -> Said:
        self._capsys.readouterr()
        status = main([*words, "--kubeconfig", self.kubeconfig])
        said = self._capsys.readouterr()
        return Said(status, said.out, said.err)

    def why(self, *words: str) -> dict[str, Any]:
        said = self.ask("why", *words, "-o", "json")
        assert said.status == 0, said.err
        return said.json

    def until_why(self, code: str, *words: str) -> dict[str, Any]:
        """Once that is the verdict."""
        found: dict[str, Any] = until(
            lambda: self.why(*words), lambda answer: answer["code"] == code
        )
        return found


def agent_pod(
    objects: Objects,
    node: str,
    *,
    namespace: str = "default",
    ready: bool = True,
    image: str = "agent:test",
    **spec: Any,
) -> str:
    """The name of an agent's pod, which a real DaemonSet makes on the node and nobody runs."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    labels = {**LABELS, "app.kubernetes.io/component": "agent", "node": node}
    container = {"name": "agent", "image": image, **spec}
    objects.make(
        f"/apis/apps/v1/namespaces/{namespace}/daemonsets",
        {
            "metadata": {"name": f"{node}-agents", "labels": labels},
            "spec": {
                "selector": {"matchLabels": {"node": node}},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "nodeSelector": {"kubernetes.io/hostname": node},
                        "terminationGracePeriodSeconds": 0,
                        "containers": [container],
                    },
                },
            },
        },
    )
    query = f"{pods}?labelSelector=node={node}"
    found = until(
        lambda: objects.get(query)["items"],
        lambda items: len(items) == 1 and bool(items[0]["spec"].get("nodeName")),
    )
    name: str = found[0]["metadata"]["name"]
    objects.adopt(f"{pods}/{name}")
    _tell(objects, f"{pods}/{name}", ready=ready)
    return name


def ready_or_not(objects: Objects, pod: str, *, ready: bool) -> None:
    """What its kubelet would say of it."""
    _tell(objects, f"{PODS}/{pod}", ready=ready)


def _tell(objects: Objects, path: str, *, ready: bool) -> None:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    running = {
        "name": "agent",
        "image": "agent:test",
        "imageID": "",
        "ready": ready,
        "restartCount": 0,
        "state": {"running": {}} if ready else {"waiting": {"reason": "ImagePullBackOff"}},
    }
    status = {"phase": "Running", "conditions": [condition], "containerStatuses": [running]}
    objects.plane.request("PATCH", f"{path}/status", {"status": status}, content_type=MERGE)
