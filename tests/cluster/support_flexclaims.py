"""FlexVolume classes and claims, the PersistentVolumes made for them, and what agents write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localvolume.volumes.marks import ELASTIC_FLEX_DRIVER, node_key
from localvolume_lab.controlplane.ports import free_ports
from tests.cluster.support_controller import Claim, Ground, Volume, in_, term
from tests.cluster.support_endpoints import http
from tests.suite.api import CLAIMS, CLASSES, EVENTS, PODS, VOLUMES
from tests.suite.names import FINALIZER, HOSTNAME, NODE_LABEL, SELECTED

ELASTIC_LABEL = "volumes.k8s.elastic.co/node-affinity"


class Flex:
    """Makes things on a Ground, which takes them away in the end."""

    def __init__(self, ground: Ground, driver: str = ELASTIC_FLEX_DRIVER) -> None:
        self.ground = ground
        self.driver = driver
        self._count = 0

    def storage_class(self, suffix: str = "flex", *, late: bool = False, **fields: Any) -> str:
        name = f"{self.ground.unique}-{suffix}"
        body = {
            "metadata": {"name": name},
            "provisioner": self.driver,
            "volumeBindingMode": "WaitForFirstConsumer" if late else "Immediate",
            **fields,
        }
        self.ground.plane.request("POST", CLASSES, body)
        self.ground.adopt(f"{CLASSES}/{name}")
        return name

    def claim(self, class_name: str, size: str = "1Gi", node: str = "", **spec: Any) -> Claim:
        """`node`: as if the scheduler had chosen it."""
        self._count += 1
        name = f"{self.ground.unique}-flex-{self._count}"
        body = {
            "metadata": {"name": name, "annotations": {SELECTED: node} if node else {}},
            "spec": {
                "storageClassName": class_name,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
                **spec,
            },
        }
        made: Claim = self.ground.plane.request("POST", CLAIMS, body)
        self.ground.adopt(f"{CLAIMS}/{name}")
        self.ground.adopt(f"{VOLUMES}/{self.name_for(made)}")
        return made

    def name_for(self, claim: Claim) -> str:
        return f"pvc-{claim['metadata']['uid']}"

    def volume_of(self, claim: Claim) -> Volume | None:
        return self.ground.get(VOLUMES, self.name_for(claim))

    def bound(self, claim: Claim) -> Volume:
        """The claim's volume, once they have each other: the volume is said to have it first."""
        found = self.ground.in_phase(self.name_for(claim), "Bound")
        self.ground.until(
            lambda: self.ground.get(CLAIMS, claim["metadata"]["name"]),
            lambda now: now and now["status"].get("phase") == "Bound",
        )
        return found

    def drop(self, claim: Claim) -> None:
        self.ground.plane.request("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")

    def drop_pod(self, name: str) -> None:
        self.ground.plane.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")

    def mounted(self, claim: Claim, node: str, *, by_elastic: bool = False, said: str = "") -> None:
        """What the driver writes at the first mount on that node: ours, or elastic's.

        `said`: what the label says instead.
        """
        labels = {ELASTIC_LABEL: said or node}
        if not by_elastic:
            labels[NODE_LABEL] = node_key(node)
        metadata: dict[str, Any] = {"labels": labels}
        if not by_elastic:
            there = self.volume_of(claim)
            assert there is not None
            metadata["finalizers"] = [*there["metadata"].get("finalizers", ()), FINALIZER]
        affinity = {"required": {"nodeSelectorTerms": [term(in_(node, key=HOSTNAME))]}}
        path = f"{VOLUMES}/{self.name_for(claim)}"
        self.ground.patch(path, {"metadata": metadata, "spec": {"nodeAffinity": affinity}})

    def being_deleted(self, claim: Claim) -> Volume:
        """The claim's volume, once its deletion is asked for and only its agent holds it."""

        def is_so(volume: Volume | None) -> bool:
            meta = (volume or {"metadata": {}})["metadata"]
            return "deletionTimestamp" in meta and meta.get("finalizers") == [FINALIZER]

        found = self.ground.until(lambda: self.volume_of(claim), is_so)
        assert found is not None
        return found

    def let_go(self, claim: Claim) -> None:
        """As its agent does, once it has written down that the data may go."""
        path = f"{VOLUMES}/{self.name_for(claim)}"
        self.ground.patch(path, {"metadata": {"finalizers": None}})
        self.gone(claim)

    def gone(self, claim: Claim) -> None:
        self.ground.until(lambda: self.volume_of(claim), lambda found: found is None)

    def event(self, volume: Volume, reason: str, text: str) -> dict[str, Any]:
        """The controller's Event of that reason about a volume, once it is there."""

        def fitting() -> list[dict[str, Any]]:
            found = self.events(volume)
            return [e for e in found if e["reason"] == reason and text in e["message"]]

        return self.ground.until(fitting, bool)[0]

    def events(self, volume: Volume) -> list[dict[str, Any]]:
        """What was said of a volume."""
        query = f"{EVENTS}?fieldSelector=involvedObject.uid={volume['metadata']['uid']}"
        found: list[dict[str, Any]] = self.ground.plane.request("GET", query)["items"]
        return found

    def settle(self) -> None:
        """Until a claim that was made later than all others has its volume, twice over."""
        if self.ground.get(CLASSES, f"{self.ground.unique}-sample") is None:
            Flex(self.ground, "localvolume.dev/flexvolume").storage_class("sample")
        for _ in range(2):
            self.bound(self.claim(f"{self.ground.unique}-sample"))


class Process:
    """A controller as a process that can be killed; it serves elastic's name."""

    def __init__(self, ground: Ground, directory: Path, *more: str) -> None:
        self.port = free_ports(1)[0]
        argv = [sys.executable, "-m", "localvolume", "controller"]
        argv += [f"--kubeconfig={ground.plane.kubeconfig}", f"--lease-name={ground.unique}"]
        argv += [f"--listen-address=127.0.0.1:{self.port}"]
        argv += ["--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s"]
        argv += ["--leader-elect-retry-period=200ms", *more]
        argv += [f"--dynamic-provisioners={ELASTIC_FLEX_DRIVER}"]
        with (directory / "controller.log").open("ab") as file:
            self._process = subprocess.Popen(
                argv,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def leads(self) -> bool:
        return http(self.port, "/ready") == (200, "ok, leading\n")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(60)


def reasons(events: Sequence[dict[str, Any]]) -> set[str]:
    return {str(event["reason"]) for event in events}
