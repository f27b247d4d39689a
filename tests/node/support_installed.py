"""deploy/install.yaml on the real node: applied as a user does, looked at, and taken away."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localvolume.config.provisioner import OURS
from localvolume_lab.controlplane import ControlPlane, KubectlFailed
from localvolume_lab.controlplane.node import KubeletNode, NodeFailed
from tests.node.support_pods import BUSYBOX, pod_spec
from tests.suite.api import VOLUMES
from tests.suite.units import MIB
from tests.suite.until import until

MANIFESTS = Path(__file__).parents[2] / "deploy" / "install.yaml"
NAMESPACE = "local-volume-provisioner"
AGENT = "app.kubernetes.io/component=agent"
CONTROLLER = "app.kubernetes.io/component=controller"
#: What deploy/install.yaml serves: a class of prepared volumes, and one of volumes made for claims.
STATIC, DYNAMIC = "fast-disks", "local"
DISCOVERED, POOL = "/mnt/fast-disks", "/mnt/pools/fast"
_POOLS = json.dumps({"fast": {"hostDir": POOL, "backend": "image"}})
_WRITE = "echo of {name} > /data/file && sync -f /data/file && touch /tmp/done; sleep 3600"

Object = dict[str, Any]


class Installed:
    """The provisioner on one node, as deploy/install.yaml has it."""

    def __init__(self, node: KubeletNode) -> None:
        self.node = node
        self.plane: ControlPlane = node.plane

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002
        return self.plane.kubectl(*arguments, input=input, timeout=360)

    def pods(self, selector: str) -> list[Object]:
        """Those that are not on their way out."""
        found = self.kubectl("get", "pods", "-n", NAMESPACE, "-l", selector, "-o", "json")
        pods: list[Object] = json.loads(found)["items"]
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def wait_ready(self) -> None:
        for kind in ("daemonset/local-volume-provisioner", f"deployment/{NAMESPACE}-controller"):
            self.kubectl("rollout", "status", "-n", NAMESPACE, kind, "--timeout=300s")

    def execute(self, pod: Object, *argv: str) -> str:
        return self.kubectl("exec", "-n", NAMESPACE, pod["metadata"]["name"], "--", *argv)

    def ask(self, pod: Object, path: str) -> str:
        """What a pod answers on its port for metrics and health, asked on its node."""
        (port,) = pod["spec"]["containers"][0]["ports"]
        url = f"http://{pod['status']['podIP']}:{port['containerPort']}{path}"
        return self.node.run(["busybox", "wget", "-q", "-O", "-", url])

    def volumes(self, class_name: str) -> list[Object]:
        found: list[Object] = self.plane.request("GET", VOLUMES)["items"]
        return [one for one in found if one["spec"]["storageClassName"] == class_name]

    def volume_until(self, class_name: str, phase: str, *, not_uid: str = "") -> Object:
        """The only volume of a class, once it is in that phase, and another object than that."""
        (volume,) = until(
            lambda: self.volumes(class_name),
            lambda found: (
                [one["status"]["phase"] for one in found] == [phase]
                and found[0]["metadata"]["uid"] != not_uid
            ),
            seconds=150,
        )
        found: Object = volume
        return found

    def gone(self, kind: str, name: str, namespace: str = "default") -> None:
        wait = ["wait", "-n", namespace, "--for=delete", f"{kind}/{name}", "--timeout=300s"]
        self.kubectl(*wait)

    def say(self) -> None:
        """What an administrator would look at where something is wrong."""
        for selector in (AGENT, CONTROLLER):
            with contextlib.suppress(Exception):
                logs = ["logs", "-n", NAMESPACE, "-l", selector, "--tail=40", "--prefix"]
                sys.stderr.write(self.kubectl(*logs))
        with contextlib.suppress(Exception):
            sys.stderr.write(self.kubectl("describe", "pods", "-n", NAMESPACE)[-6000:])


@contextlib.contextmanager
def installed_on(node: KubeletNode, directory: Path) -> Iterator[Installed]:
    """The node's disks, and what deploy/install.yaml has, until the end; then nothing of it.

    /mnt on the node is its own, with a pool's disk mounted. The node has the image already.
    """
    with contextlib.ExitStack() as stack:
        node.run(["mount", "-t", "tmpfs", "-o", "mode=755", "installed", "/mnt"])
        stack.callback(node.run, ["umount", "--lazy", "/mnt"])
        node.run(["mkdir", "-p", DISCOVERED, POOL])
        stack.enter_context(disk(node, directory / "pool.disk", POOL, 1024 * MIB))
        made = Installed(node)
        stack.callback(_remove, made)
        made.kubectl("apply", "-f", str(MANIFESTS))
        yield made


@contextlib.contextmanager
def serving_on(node: KubeletNode, directory: Path) -> Iterator[Installed]:
    """The same with what an administrator adds for volumes that are made for claims, and ready."""
    with installed_on(node, directory) as made:
        patch = {"data": {"pools": _POOLS}}
        made.kubectl(
            *("patch", "configmap", "-n", NAMESPACE, "local-volume-provisioner-config"),
            *("--type=merge", "-p", json.dumps(patch)),
        )
        try:
            made.wait_ready()
            yield made
        except BaseException:
            made.say()
            raise


@contextlib.contextmanager
def disk(node: KubeletNode, image: Path, point: str, size: int) -> Iterator[str]:
    """An ext4 filesystem on a device of its own, mounted in the node; yields the device."""
    with image.open("wb") as file:
        file.truncate(size)
    argv = ["losetup", "--find", "--show", str(image)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    device = done.stdout.strip()
    try:
        subprocess.run(["mkfs.ext4", "-q", device], check=True, stdin=subprocess.DEVNULL)
        node.run(["mkdir", "-p", point])
        node.run(["mount", device, point])
        try:
            yield device
        finally:
            # A node that lost power has none of its mounts.
            if node.running:
                node.run(["umount", "--lazy", point])
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def claim_of(name: str, size: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": name,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
        },
    }


def claim_and_write(installed: Installed, name: str, size: str = "32Mi") -> None:
    """A claim of the class `name`, and a pod of that name that has written to it."""
    claim = claim_of(name, size)
    container = {
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/done"]}, "periodSeconds": 1},
    }
    spec = pod_spec(_WRITE.format(name=name), image=BUSYBOX, **container)
    spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    installed.kubectl("create", "-f", "-", input=json.dumps(claim))
    installed.kubectl("create", "-f", "-", input=json.dumps(pod))
    installed.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=300s")


def restart_agent(installed: Installed) -> None:
    # The DaemonSet may still tell of the old one, which was ready.
    name = f"pod/{next_agent(installed)['metadata']['name']}"
    installed.kubectl("wait", "-n", NAMESPACE, "--for=condition=Ready", name, "--timeout=300s")
    installed.wait_ready()


def next_agent(installed: Installed) -> Object:
    """Its pod is deleted: the next one, once it is there."""
    (old,) = installed.pods(AGENT)
    installed.kubectl("delete", "pod", "-n", NAMESPACE, old["metadata"]["name"])
    (new,) = until(lambda: installed.pods(AGENT), lambda pods: len(pods) == 1, seconds=150)
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    found: Object = new
    return found


def readiness(installed: Installed, pod: Object) -> str:
    try:
        return installed.ask(pod, "/ready")
    except NodeFailed as error:
        return str(error)


def _remove(made: Installed) -> None:
    made.kubectl("delete", "-f", str(MANIFESTS), "--ignore-not-found", "--timeout=300s")
    made.kubectl("delete", "csidriver", *OURS, "--ignore-not-found")
    # No agent is left that would let them go.
    for volume in [*made.volumes(STATIC), *made.volumes(DYNAMIC)]:
        name = volume["metadata"]["name"]
        gone = '{"metadata": {"finalizers": null}}'
        made.kubectl("delete", "pv", name, "--ignore-not-found", "--wait=false")
        with contextlib.suppress(KubectlFailed):
            made.kubectl("patch", "pv", name, "--type=merge", "-p", gone)
