"""A node that serves FlexVolume: directories, PersistentVolumes, pods, and calls as the client's.

The control plane binds for real; who mounts is the test, in the kubelet's place.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localvolume.flexvolume.paces import FlexPaces
from localvolume.host.mount.mounts import read_mount_table
from localvolume_lab.controlplane import RequestFailed
from tests.cluster.support_agent import Lab
from tests.cluster.support_objects import Objects
from tests.host.support_flex import ask
from tests.host.support_mounts import MNT_DETACH, umount
from tests.suite.api import CLAIMS, PODS, VOLUMES
from tests.suite.names import FINALIZER, HOSTNAME

OURS = "localvolume.dev/flexvolume"
ELASTIC = "volumes.k8s.elastic.co/elastic-local"
ELASTIC_LABEL = "volumes.k8s.elastic.co/node-affinity"

Object = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What the daemon said; `reply` is empty where it is no JSON."""

    status: int
    text: str
    reply: Object

    @property
    def ok(self) -> bool:
        return self.reply.get("status") == "Success"

    @property
    def message(self) -> str:
        return str(self.reply.get("message", self.text))


QUICK = FlexPaces(rest=0.2, resync=1.0, again=0.5, watched=0.0)


class FlexLab(Lab):
    """`volume`, `pod`; then `start`, `mount`, `unmount`."""

    def __init__(self, objects: Objects, unique: str, directory: Path) -> None:
        super().__init__(objects, unique, directory)
        self.hostname = f"{unique}.example"
        self.root = directory / "volumes"
        self.root.mkdir()
        self.kubelet = directory / "kubelet"
        self.plugins = directory / "plugins"
        self.socket = directory / "run" / "flexvolume.sock"
        self.client = directory / "client"
        self.client.write_text("#!/bin/sh\n")
        self.section: Object = {
            "driver": "bindmount",
            "bindRoot": str(self.root),
            "socket": str(self.socket),
            "pluginDirectory": str(self.plugins),
            "client": str(self.client),
            "gracePeriod": "0s",
        }
        self.settings = {"flexvolume": self.section}
        self.names: set[str] = set()

    # --- objects -------------------------------------------------------------------------------

    def volume(
        self,
        kind: str = "a",
        *,
        driver: str = OURS,
        policy: str = "Delete",
        bound: bool = True,
        labels: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
        affinity: str = "",
        finalizers: list[str] | None = None,
        class_name: str = "",
        claim: Object | None = None,
        read_only: bool = False,
    ) -> Object:
        """A PersistentVolume and its claim, bound to each other by the control plane."""
        name = f"{self.unique}-{kind}"
        self.names.add(name)
        capacity = {"storage": "8Mi"}
        shared: Object = {"storageClassName": class_name, "accessModes": ["ReadWriteOnce"]}
        source = {
            "driver": driver,
            "readOnly": read_only,
            "options": {"sizeBytes": str(8 << 20), **(options or {})},
        }
        spec: Object = {
            **shared,
            "capacity": capacity,
            "persistentVolumeReclaimPolicy": policy,
            "flexVolume": source,
        }
        if bound:
            spec["claimRef"] = {"namespace": "default", "name": name}
        elif claim is not None:
            spec["claimRef"] = {key: claim[key] for key in ("namespace", "name", "uid")}
        if affinity:
            term = {"key": HOSTNAME, "operator": "In", "values": [affinity]}
            spec["nodeAffinity"] = {
                "required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
            }
        # Without it the control plane takes a volume to be deleted for one that nobody deletes.
        metadata = {
            "name": name,
            "annotations": {"pv.kubernetes.io/provisioned-by": driver},
            "labels": dict(labels or {}),
            "finalizers": finalizers or [],
        }
        made = self.plane.request("POST", VOLUMES, {"metadata": metadata, "spec": spec})
        if not bound:
            return dict(made)
        self.objects.make(
            CLAIMS,
            {
                "metadata": {"name": name},
                "spec": {**shared, "volumeName": name, "resources": {"requests": capacity}},
            },
        )
        self.until(lambda: self.objects.get(f"{CLAIMS}/{name}"), lambda c: phase_of(c) == "Bound")
        return self.until(lambda: self.read(name) or {}, lambda v: phase_of(v) == "Bound")

    def read(self, name: str) -> Object | None:
        return super().volume(name)

    def pod(self, volume: Object, *, claim: str = "", inline: bool = False) -> Object:
        """A pod that uses the volume's claim (or another, or describes the volume itself)."""
        name = volume["metadata"]["name"]
        used: Object = {"persistentVolumeClaim": {"claimName": claim or name}}
        if inline:
            used = {"flexVolume": {"driver": volume["spec"]["flexVolume"]["driver"]}}
        body = {
            "metadata": {"name": f"{self.unique}-{secrets.token_hex(3)}"},
            "spec": {
                "nodeName": self.node,
                "containers": [{"name": "main", "image": "none"}],
                "volumes": [{"name": "data", **used}],
            },
        }
        return self.objects.make(PODS, body)

    # --- calls ---------------------------------------------------------------------------------

    def target(self, volume: Object, uid: str = "pod-1") -> Path:
        """Where the kubelet wants it; made, as the kubelet does."""
        vendor, _, driver = volume["spec"]["flexVolume"]["driver"].partition("/")
        name = volume["metadata"]["name"]
        place: Path = self.kubelet / "pods" / uid / "volumes" / f"{vendor}~{driver}" / name
        place.mkdir(parents=True, exist_ok=True)
        return place

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        status, _, text = asyncio.run(ask(self.socket, method, path, body))
        reply = json.loads(text) if text.startswith("{") else {}
        return Answer(status, text, reply)

    def mount(  # type: ignore[override]  # of another kind
        self, volume: Object, *, pod: Object | None = None, uid: str = "pod-1", **options: str
    ) -> Answer:
        """As the kubelet mounts it for a pod."""
        name = volume["metadata"]["name"]
        given = {
            "kubernetes.io/fsType": "",
            "kubernetes.io/readwrite": "rw",
            "kubernetes.io/pvOrVolumeName": name,
            **volume["spec"]["flexVolume"]["options"],
        }
        if pod is not None:
            uid = pod["metadata"]["uid"]
            given["kubernetes.io/pod.name"] = pod["metadata"]["name"]
            given["kubernetes.io/pod.namespace"] = pod["metadata"]["namespace"]
            given["kubernetes.io/pod.uid"] = uid
        given.update(options)
        target = str(self.target(volume, uid))
        return self.call("POST", "/mount", {"targetDir": target, "options": given})

    def unmount(self, volume: Object, uid: str = "pod-1") -> Answer:
        return self.call("POST", "/unmount", {"targetDir": str(self.target(volume, uid))})

    # --- life ----------------------------------------------------------------------------------

    def serve(self, **options: Any) -> None:
        """Start the agent, and wait until it serves and has looked at everything once."""
        self.start(wait=False, **options)
        self.until(lambda: self.socket.exists() and self.logged("serving FlexVolume"), bool)
        gone = "localvolume_flexvolume_gone_volumes"
        self.until(lambda: self.metric(gone, fate="due"), lambda found: found is not None)
        self.until(self.looks, lambda looks: looks > 0)

    def forget_claim(self, volume: Object) -> None:
        """Delete the claim, wait until the volume is Released, and delete it as our controller."""
        name = volume["metadata"]["name"]
        self.plane.request("DELETE", f"{CLAIMS}/{name}")
        self.until(lambda: phase_of(self.read(name) or {}), lambda phase: phase == "Released")
        self.plane.request("DELETE", f"{VOLUMES}/{name}")

    def gone(self, volume: Object) -> None:
        name = volume["metadata"]["name"]
        self.until(lambda: self.read(name), lambda found: found is None)

    def recorded(self) -> list[str]:
        records = self.root / ".localvolume" / "flexvolumes"
        return sorted(one.stem for one in records.glob("*.json"))

    def note_of(self, volume: Object) -> Object:
        name = volume["metadata"]["name"]
        path = self.root / ".localvolume" / "flexvolumes" / f"{name}.json"
        found: Object = json.loads(path.read_text())["tags"]
        return found

    def _remove_objects(self) -> None:
        for mount in reversed(read_mount_table().below(str(self.kubelet))):
            umount(mount.mount_point, MNT_DETACH)
        for name in self.names:
            self._ignore_missing("DELETE", f"{CLAIMS}/{name}")
            path = f"{VOLUMES}/{name}"
            self._ignore_missing("PATCH", path, {"metadata": {"finalizers": None}})
            with contextlib.suppress(RequestFailed):
                self.plane.request("DELETE", path)


def phase_of(volume: Object) -> str:
    return str(volume.get("status", {}).get("phase", ""))


def finalized(volume: Object | None) -> bool:
    return volume is not None and FINALIZER in volume["metadata"].get("finalizers", [])


@contextlib.contextmanager
def flex_lab_for(objects: Objects, unique: str, directory: Path) -> Iterator[FlexLab]:
    """A lab with its node, whose hostname is not its name; everything of it goes in the end."""
    with FlexLab(objects, unique, directory) as lab:
        lab.make_node({HOSTNAME: lab.hostname})
        yield lab
