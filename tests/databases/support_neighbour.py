"""Somebody else's volume in the same pool, and a pod that writes to it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

from localvolume_lab.controlplane import ControlPlane
from tests.databases.support_images import IMAGES
from tests.node.support_installed import claim_of
from tests.node.support_pods import pod_spec

_NAME = "neighbour"


class Neighbour:
    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def write(self, mebibytes: int) -> str:
        """Write so much at random; the digest of what is read back."""
        script = (
            f"head -c {mebibytes << 20} /dev/urandom >/data/new && sync -f /data/new &&"
            " mv /data/new /data/file && sha256sum </data/file"
        )
        return self.run(script)

    def read(self) -> str:
        """The digest of what is there."""
        return self.run("sha256sum </data/file")

    def run(self, script: str) -> str:
        """What a script says in the pod."""
        return self._plane.kubectl("exec", _NAME, "--", "sh", "-c", script).strip()


@contextlib.contextmanager
def neighbour(
    plane: ControlPlane, class_name: str, image: str, size: str, *, place: str = "/data"
) -> Iterator[Neighbour]:
    """A running pod of a database's image with a claim of its own at that place, until the end."""
    claim = claim_of(_NAME, size)
    claim["spec"]["storageClassName"] = class_name
    mounts = {"volumeMounts": [{"name": "data", "mountPath": place}]}
    spec = pod_spec("sleep infinity", image=IMAGES[image].reference, **mounts)
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": _NAME}}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": _NAME}, "spec": spec}
    try:
        for body in (claim, pod):
            plane.kubectl("create", "-f", "-", input=json.dumps(body))
        plane.kubectl(
            "wait", "--for=condition=Ready", f"pod/{_NAME}", "--timeout=170s", timeout=180
        )
        yield Neighbour(plane)
    finally:
        plane.kubectl("delete", "pod", _NAME, "--ignore-not-found", timeout=180)
        plane.kubectl("delete", "pvc", _NAME, "--ignore-not-found", timeout=180)
