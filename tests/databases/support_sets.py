"""The StatefulSets of docs/databases.md on real nodes: applied, asked, and taken away again."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from localvolume_lab.controlplane import RequestFailed
from localvolume_lab.controlplane.kubectl import KubectlFailed
from tests.cluster.support_databases import SHOWN
from tests.cluster.support_objects import Objects
from tests.databases.support_ground import Ground
from tests.databases.support_images import IMAGES
from tests.suite.api import CLAIMS, MERGE, PODS, VOLUMES
from tests.suite.until import until

Object = dict[str, Any]

#: Of a database on two slow processors, from nothing to ready.
PATIENT = 300


class Database:
    """The objects of one block of the page, with another image and size, on a class named like the
    database. `replicas` may be fewer, and `environment` is added to the container's."""

    def __init__(
        self,
        ground: Ground,
        name: str,
        size: str,
        *,
        replicas: int = 3,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.ground = ground
        self.plane = ground.plane
        self.name = name
        self.replicas = replicas
        self._bodies = list(yaml.safe_load_all(SHOWN[f"{name}.yaml"]))
        (spec,) = (body["spec"] for body in self._bodies if body["kind"] == "StatefulSet")
        spec["replicas"] = replicas
        (container,) = spec["template"]["spec"]["containers"]
        container["image"] = IMAGES[name].reference
        (mount,) = container["volumeMounts"]
        self._place = mount["mountPath"]
        for variable, value in (environment or {}).items():
            others = [one for one in container.get("env", []) if one["name"] != variable]
            container["env"] = [*others, {"name": variable, "value": value}]
        for template in spec["volumeClaimTemplates"]:
            assert template["spec"]["storageClassName"] == "local"
            template["spec"]["storageClassName"] = name
            template["spec"]["resources"]["requests"]["storage"] = size

    def apply(self) -> None:
        whole = {"apiVersion": "v1", "kind": "List", "items": self._bodies}
        self.plane.kubectl("apply", "-f", "-", input=json.dumps(whole))

    def remove(self) -> None:
        """Take away all of it, and wait until the volumes are gone that a node can remove."""
        names = [self._volume_name(number) for number in range(self.replicas)]
        force = ["--grace-period=0", "--force"]
        for body in self._bodies:
            kind, name = body["kind"].lower(), body["metadata"]["name"]
            self.plane.kubectl("delete", kind, name, "--ignore-not-found", timeout=180)
        for number in range(self.replicas):
            pod, claim = self.pod(number), f"data-{self.pod(number)}"
            self.plane.kubectl("delete", "pod", pod, *force, "--ignore-not-found", timeout=180)
            self.plane.kubectl("delete", "pvc", claim, "--ignore-not-found", timeout=180)
        self.until(
            lambda: [name for name in names if name and self._is_left(name)], lambda left: not left
        )

    def pod(self, number: int) -> str:
        return f"{self.name}-{number}"

    def uid(self, number: int) -> str:
        """Of the replica's pod."""
        return str(self._pod(number)["metadata"]["uid"])

    def ready(self, number: int, *, other_than: str = "") -> str:
        """Wait until the replica is ready, by another pod than that; returns the pod's UID."""

        def wanted(pod: Object) -> bool:
            return _is_ready(pod) and pod["metadata"]["uid"] != other_than

        return str(self.until(lambda: self._pod(number), wanted)["metadata"]["uid"])

    def why_it_waits(self, number: int) -> str:
        """What the scheduler says of the replica's pod; "" where it is placed, or there is none."""
        return "; ".join(
            one["message"]
            for one in _conditions_of(self._pod(number))
            if one.get("reason") == "Unschedulable"
        )

    def made_again(self, number: int) -> None:
        """Delete the pod, and wait until the replica is back."""
        before = self.uid(number)
        self.plane.kubectl("delete", "pod", self.pod(number), "--wait=false")
        self.ready(number, other_than=before)

    def kill(self, number: int) -> None:
        """End all processes of the container as a crash does, and wait until it is ready again."""
        pod = self._pod(number)
        before = _container_of(pod)
        node = self.ground.nodes[pod["spec"]["nodeName"]]
        tasks = ["ctr", "--namespace", "k8s.io", "tasks"]
        node.run([*tasks, "kill", "--signal", "SIGKILL", "--all", before])
        self.until(
            lambda: self._pod(number),
            lambda pod: _container_of(pod) not in ("", before) and _is_ready(pod),
        )

    def run(self, number: int, *argv: str, input: str | None = None, seconds: float = 120) -> str:  # noqa: A002
        """What a program says in the replica's container; raises KubectlFailed."""
        options = ["-i"] if input is not None else []
        command = ["exec", *options, self.pod(number), "--", *argv]
        return self.plane.kubectl(*command, input=input, timeout=seconds).strip()

    def log(self, number: int, *options: str) -> str:
        """What the container has said, and the one before it with `--previous`; "" for none."""
        with contextlib.suppress(KubectlFailed):
            return self.plane.kubectl("logs", self.pod(number), *options)
        return ""

    def free(self, number: int) -> int:
        """The MiB that are free on the volume, as the container sees it."""
        line = self.run(number, "df", "-m", self._place).splitlines()[-1]
        return int(line.split()[3])

    def grow(self, number: int, size: str) -> None:
        """As the page says: raise the request of the claim; returns once the claim has it."""
        claim = f"{CLAIMS}/data-{self.pod(number)}"
        wish = {"spec": {"resources": {"requests": {"storage": size}}}}
        self.plane.request("PATCH", claim, wish, content_type=MERGE)
        self.until(
            lambda: self.plane.request("GET", claim)["status"]["capacity"]["storage"],
            lambda found: found == size,
        )

    def until(self, read: Any, wanted: Any = bool) -> Any:
        return until(read, wanted, seconds=PATIENT, every=0.5, said=self._said)

    def _pod(self, number: int) -> Object:
        """The replica's pod; {} for none."""
        with contextlib.suppress(RequestFailed):
            found: Object = self.plane.request("GET", f"{PODS}/{self.pod(number)}")
            return found
        return {}

    def _volume_name(self, number: int) -> str:
        with contextlib.suppress(RequestFailed):
            claim = self.plane.request("GET", f"{CLAIMS}/data-{self.pod(number)}")
            return str(claim["spec"].get("volumeName", ""))
        return ""

    def _is_left(self, volume: str) -> bool:
        try:
            found = self.plane.request("GET", f"{VOLUMES}/{volume}")
        except RequestFailed as error:
            if error.status == 404:
                return False
            raise
        return node_of(found) in self.ground.nodes

    def _said(self) -> str:
        parts = [self.ground.logs()]
        for number in range(self.replicas):
            with contextlib.suppress(KubectlFailed):
                parts.append(self.plane.kubectl("describe", "pod", self.pod(number))[-2500:])
            parts += [self.log(number, "--tail=40"), self.log(number, "--previous", "--tail=20")]
        return "\n".join(parts)


@contextlib.contextmanager
def applied(
    ground: Ground,
    objects: Objects,
    name: str,
    size: str,
    *,
    fs_type: str = "ext4",
    replicas: int = 3,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Database]:
    """A database of the page on a class of that filesystem, until the end; then nothing of it."""
    ground.storage_class(objects, name, fs_type)
    made = Database(ground, name, size, replicas=replicas, environment=environment)
    try:
        made.apply()
        yield made
    except BaseException:
        sys.stderr.write(ground.logs())
        raise
    finally:
        made.remove()


def node_of(volume: Object) -> str:
    """The only node that may use it."""
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    (wanted,) = term["matchExpressions"]
    (node,) = wanted["values"]
    return str(node)


def _conditions_of(pod: Object) -> list[Object]:
    found: list[Object] = pod.get("status", {}).get("conditions", [])
    return found


def _is_ready(pod: Object) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in _conditions_of(pod))


def _container_of(pod: Object) -> str:
    """The name of the pod's container on its node; "" for none yet."""
    (found,) = pod.get("status", {}).get("containerStatuses") or [{}]
    return str(found.get("containerID", "")).removeprefix("containerd://")
