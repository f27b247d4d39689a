"""Dynamic volumes on the real node: pools on its disks, the agent in it, the controller beside."""

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
from tests.node.support_pods import pod_spec, pod_until, said_to_its_end, to_its_end
from tests.suite.api import CLAIMS, CLASSES, PODS, VOLUMES
from tests.suite.names import LOCAL_PATH, NATIVE
from tests.suite.units import MIB
from tests.suite.until import until

Object = dict[str, Any]


class Ground:
    """What an administrator sets up once: two disks, the agent and the controller."""

    def __init__(self, node: KubeletNode, directory: Path, unique: str) -> None:
        self.node = node
        self.plane = node.plane
        self.directory = directory
        self.unique = unique
        self.paths = directory / "paths"
        self.images = directory / "images"
        self.programs: list[Program] = []

    def start(self) -> None:
        ours = [sys.executable, "-m", "localvolume"]
        environment = {
            "KUBECONFIG": str(self.plane.kubeconfig),
            "MY_NODE_NAME": self.node.name,
            "MY_NAMESPACE": "default",
        }
        config = self.directory / "config"
        config.mkdir()
        pools = {"images": {"hostDir": str(self.images), "backend": "image"}}
        (config / "pools").write_text(json.dumps(pools))
        place = {"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": [str(self.paths)]}
        (self.directory / "config.json").write_text(json.dumps({"nodePathMap": [place]}))
        agent = [*ours, "agent", "--config", str(config), "--listen-address", "127.0.0.1:0"]
        agent += ["--local-path-config", str(self.directory / "config.json")]
        controller = [*ours, "controller", "--dynamic-provisioners", LOCAL_PATH]
        controller += ["--lease-name", f"{self.unique}-lease", "--listen-address", ""]
        for name, argv in (("agent", self.node.enter(agent)), ("controller", controller)):
            self.programs.append(Program(argv, environment, self.directory / f"{name}.log"))

    def stop(self) -> None:
        for program in self.programs:
            program.stop()

    def logs(self) -> str:
        return "\n".join(one.log.read_text()[-2000:] for one in self.programs)


@contextlib.contextmanager
def ground_on(node: KubeletNode, directory: Path, unique: str) -> Iterator[Ground]:
    """Disks, agent and controller until the end; the objects they made are taken away too."""
    ground = Ground(node, directory, unique)
    with contextlib.ExitStack() as stack:
        for place, size in ((ground.paths, 64), (ground.images, 256)):
            place.mkdir()
            image = directory / f"{place.name}.disk"
            with image.open("wb") as file:
                file.truncate(size * MIB)
            argv = ["losetup", "--find", "--show", str(image)]
            done = subprocess.run(argv, check=True, capture_output=True, text=True)
            device = done.stdout.strip()
            stack.callback(subprocess.run, ["losetup", "--detach", device], check=True)
            subprocess.run(["mkfs.ext4", "-q", device], check=True, stdin=subprocess.DEVNULL)
            node.run(["mount", device, str(place)])
            stack.callback(node.run, ["umount", "--lazy", str(place)])
        stack.callback(_forget, ground)
        ground.start()
        stack.callback(ground.stop)
        yield ground


def _forget(ground: Ground) -> None:
    storage = "/apis/storage.k8s.io/v1"
    capacities = f"{storage}/namespaces/default/csistoragecapacities"
    for one in ground.plane.request("GET", capacities)["items"]:
        ground.plane.request("DELETE", f"{capacities}/{one['metadata']['name']}")
    with contextlib.suppress(RequestFailed):
        ground.plane.request("DELETE", f"{storage}/csidrivers/{NATIVE}")


class Tenant:
    """One class, and claims and pods of it; all of them go in the end, the pods first."""

    def __init__(self, ground: Ground, objects: Objects, unique: str) -> None:
        self.ground = ground
        self.objects = objects
        self.unique = unique
        self._pods = 0

    def storage_class(self, provisioner: str, **fields: Any) -> None:
        body = {
            "metadata": {"name": self.unique, "annotations": fields.pop("annotations", {})},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
            **fields,
        }
        self.objects.make(CLASSES, body)

    def claim(
        self,
        *,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        meta = {"annotations": dict(annotations or {}), "labels": dict(labels or {})}
        body = {
            "metadata": {"name": self.unique, **meta},
            "spec": {
                "storageClassName": self.unique,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "32Mi"}},
                **spec,
            },
        }
        self.objects.make(CLAIMS, body)

    def run(
        self, script: str, *, security: Object | None = None, block: bool = False, **mount: Any
    ) -> str:
        """What a pod with the claim at /data (or as /dev/data) says, once it has succeeded."""
        self._pods += 1
        name, words = f"{self.unique}-{self._pods}", to_its_end(script)
        if block:
            spec = pod_spec(words, volumeDevices=[{"name": "data", "devicePath": "/dev/data"}])
        else:
            place = {"name": "data", "mountPath": "/data", **mount}
            spec = pod_spec(words, volumeMounts=[place])
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": self.unique}}]
        spec["securityContext"] = security or {}
        self.ground.plane.request("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        try:
            pod_until(self.objects, name, "Succeeded")
            return said_to_its_end(self.ground.plane, name)
        except BaseException:
            sys.stderr.write(self.ground.logs())
            raise
        finally:
            self.ground.plane.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
            self._gone(f"{PODS}?fieldSelector=metadata.name={name}")

    def _gone(self, path: str) -> None:
        until(lambda: self.objects.get(path)["items"], lambda items: not items, seconds=150)

    def volume(self) -> Object:
        """The claim's PersistentVolume."""
        found = self.objects.get(f"{CLAIMS}/{self.unique}")["spec"]["volumeName"]
        return self.objects.get(f"{VOLUMES}/{found}")

    def remove(self) -> None:
        """Delete the claim, and wait until its PersistentVolume is gone."""
        name = self.volume()["metadata"]["name"]
        self.ground.plane.request("DELETE", f"{CLAIMS}/{self.unique}")
        try:
            self._gone(f"{VOLUMES}?fieldSelector=metadata.name={name}")
        except BaseException:
            sys.stderr.write(self.ground.logs())
            raise

    def below(self, place: Path) -> list[str]:
        """What lies in a pool on the node, without ours, once what was removed is purged."""
        listed = self.ground.node.run(["ls", "-A", str(place)]).split()
        return sorted(set(listed) - {".localvolume", "lost+found"})

    def purged(self, place: Path) -> None:
        until(
            lambda: left_in(self.ground.node, str(place)),
            lambda left: not left,
            seconds=150,
            said=self.ground.logs,
        )


def left_in(node: KubeletNode, pool: str) -> list[str]:
    """What there is yet of volumes in a pool on the node: records, images, and what is removed."""
    # Not find(1): it fails where a directory goes away before it looks into it.
    places = [f"{pool}/.localvolume/{part}" for part in ("records", "trash", "images")]
    return [name for place in places for name in node.run(["ls", "-A", place]).split()]
