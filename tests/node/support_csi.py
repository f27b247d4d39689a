"""CSI volumes on the real node: a pool, the agent as the driver of kubelet, the controller."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from localvolume_lab.controlplane import RequestFailed
from localvolume_lab.controlplane.node import KubeletNode
from tests.cluster.support_objects import Objects
from tests.cluster.support_program import Program
from tests.node.support_dynamic import Ground, Tenant
from tests.node.support_pods import pod_spec, pod_until
from tests.suite.api import CLAIMS, DRIVERS, MERGE, PODS
from tests.suite.names import CSI
from tests.suite.units import MIB
from tests.suite.until import until

Object = dict[str, Any]

CGROUPS = "/sys/fs/cgroup"
MOST = 60
"""Volumes of the driver that pods of the node may use."""
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"


class CsiGround(Ground):
    """The agent with `--csi` and the controller; the agent can be killed and started anew."""

    agent: Program

    def start(self) -> None:
        config = self.directory / "config"
        config.mkdir()
        limits = {"largest": "64Mi", "total": "96Mi"}
        pools = {"images": {"hostDir": str(self.images), "backend": "image", "inline": limits}}
        (config / "pools").write_text(json.dumps(pools))
        controller = ["controller", "--lease-name", f"{self.unique}-lease", "--listen-address", ""]
        self.programs.append(self._program("controller", self._ours(*controller)))
        self.start_agent()

    def start_agent(self) -> None:
        """Start it, or start it anew after it was killed."""
        argv = self._ours("agent", "--csi", "--config", str(self.directory / "config"))
        argv = self.node.enter(
            [*argv, "--listen-address", "127.0.0.1:0", f"--cgroup-dir={CGROUPS}"]
        )
        argv.append(f"--csi-max-volumes={MOST}")
        self.agent = self._program("agent", argv)
        self.programs.append(self.agent)

    def kill_agent(self) -> None:
        """As the kernel does that runs out of memory."""
        self.agent.kill()
        self.programs.remove(self.agent)

    def _ours(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "localvolume", *words]

    def _program(self, name: str, argv: list[str]) -> Program:
        environment = {
            "KUBECONFIG": str(self.plane.kubeconfig),
            "KUBELET_DIR": str(self.node.kubelet_root),
            "MY_NODE_NAME": self.node.name,
            "MY_NAMESPACE": "default",
        }
        return Program(argv, environment, self.directory / f"{name}.log")

    def drivers(self) -> list[Object]:
        """The drivers that the kubelet has told the cluster of."""
        try:
            found = self.plane.request("GET", f"{CSI_NODES}/{self.node.name}")
        except RequestFailed as error:
            if error.status == 404:
                return []
            raise
        drivers: list[Object] = found["spec"]["drivers"] or []
        return drivers

    def driver_mounts(self) -> list[str]:
        """The mount points on the node that its kubelet has had from CSI drivers."""
        table = self.node.run(["cat", "/proc/self/mountinfo"]).splitlines()
        root = f"{self.node.kubelet_root}/"
        points = [line.split()[4] for line in table if line.split()[4].startswith(root)]
        return [
            one for one in points if "/kubernetes.io/csi/" in one or "/kubernetes.io~csi/" in one
        ]


def own_volume(**attributes: str) -> Object:
    """The source of a volume in a pod's own spec."""
    return {"csi": {"driver": CSI, "volumeAttributes": attributes}}


@contextlib.contextmanager
def csi_ground_on(
    node: KubeletNode, directory: Path, unique: str, *, fs_type: str = "ext4"
) -> Iterator[CsiGround]:
    """A disk, agent and controller until the end; the objects they made are taken away too."""
    ground = CsiGround(node, directory, unique)
    with contextlib.ExitStack() as stack:
        ground.images.mkdir()
        image = directory / "images.disk"
        with image.open("wb") as file:
            file.truncate(1024 * MIB)
        argv = ["losetup", "--find", "--show", str(image)]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        device = done.stdout.strip()
        stack.callback(subprocess.run, ["losetup", "--detach", device], check=True)
        subprocess.run([f"mkfs.{fs_type}", "-q", device], check=True, stdin=subprocess.DEVNULL)
        node.run(["mount", device, str(ground.images)])
        stack.callback(node.run, ["umount", "--lazy", str(ground.images)])
        stack.callback(_forget, ground)
        stack.callback(ground.stop)
        ground.start()
        until(ground.drivers, seconds=150, said=ground.logs)
        yield ground


def _forget(ground: Ground) -> None:
    capacities = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities"
    for one in ground.plane.request("GET", capacities)["items"]:
        ground.plane.request("DELETE", f"{capacities}/{one['metadata']['name']}")
    for one in ground.plane.request("GET", DRIVERS)["items"]:
        if one["metadata"]["name"].endswith(".localvolume.dev"):
            ground.plane.request("DELETE", f"{DRIVERS}/{one['metadata']['name']}")


class CsiTenant(Tenant):
    """A class of the driver's, its claim, and pods that go on until they are deleted."""

    ground: CsiGround

    def __init__(self, ground: CsiGround, objects: Objects, unique: str) -> None:
        super().__init__(ground, objects, unique)
        self._running: list[str] = []

    def csi_class(self, **fields: Any) -> None:
        self.storage_class(CSI, allowVolumeExpansion=True, **fields)

    def begin(self, **security: Any) -> str:
        """Start a pod with the claim at /data, and wait until it runs; returns its name."""
        name = self.ask_to_begin(**security)
        self.begun(name)
        return name

    def begin_with_own(self, *, size: str = "32Mi", **security: Any) -> str:
        """The same with a volume of its own spec."""
        name = self.ask_for(own_volume(size=size), **security)
        self.begun(name)
        return name

    def ask_to_begin(self, **security: Any) -> str:
        """Have a pod started with the claim at /data; returns its name."""
        return self.ask_for(self.source, **security)

    @property
    def source(self) -> Object:
        """The claim, as a pod's spec names it."""
        return {"persistentVolumeClaim": {"claimName": self.unique}}

    def ask_for(self, source: Object, **security: Any) -> str:
        """The same with a volume from that source."""
        return self.ask_for_all({"data": source}, **security)

    def ask_for_all(self, sources: Mapping[str, Object], **security: Any) -> str:
        """The same with several volumes, each at /NAME."""
        self._pods += 1
        name = f"{self.unique}-{self._pods}"
        places = [{"name": one, "mountPath": f"/{one}"} for one in sources]
        spec = pod_spec("while sleep 1; do :; done", volumeMounts=places)
        spec["volumes"] = [{"name": one, **source} for one, source in sources.items()]
        spec["securityContext"] = security
        self.ground.plane.request("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        self._running.append(name)
        return name

    def begun(self, pod: str) -> None:
        """Wait until the pod runs."""
        try:
            pod_until(self.objects, pod, "Running")
        except BaseException:
            sys.stderr.write(self.ground.logs())
            raise

    def within(self, pod: str, script: str) -> str:
        """What a script says in a running pod."""
        return self.ground.plane.kubectl("exec", pod, "--", "sh", "-c", script).strip()

    def ask_to_end(self, pod: str) -> None:
        self.ground.plane.request("DELETE", f"{PODS}/{pod}")

    def ended(self, pod: str) -> None:
        """Wait until the pod's object is gone: the kubelet has unmounted its volumes by then."""
        self._running.remove(pod)
        query = f"{PODS}?fieldSelector=metadata.name={pod}"
        until(
            lambda: self.objects.get(query)["items"],
            lambda items: not items,
            seconds=150,
            said=self.ground.logs,
        )

    def end(self, pod: str) -> None:
        self.ask_to_end(pod)
        self.ended(pod)

    def end_all(self) -> None:
        """Have no pod of a test that failed hold its claim."""
        for name in self._running:
            with contextlib.suppress(RequestFailed):
                self.ground.plane.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    def unmounted(self) -> None:
        """Wait until nothing of the volume is mounted for a pod, nor staged for one."""
        until(
            self.ground.driver_mounts,
            lambda points: not points,
            seconds=150,
            said=self.ground.logs,
        )

    def grow(self, size: str) -> None:
        self.ground.plane.request(
            "PATCH",
            f"{CLAIMS}/{self.unique}",
            {"spec": {"resources": {"requests": {"storage": size}}}},
            content_type=MERGE,
        )
