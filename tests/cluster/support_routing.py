"""Claims to be routed, and what that depends on: classes, room, pods, and others' volumes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from localvolume.volumes.marks import DYNAMIC_PROVISIONER, node_key
from tests.cluster.support_controller import Claim, Ground, Volume
from tests.suite.api import CAPACITIES, CLAIMS, CLASSES, NODES, PODS, VOLUMES
from tests.suite.names import NODE_LABEL, POOL, PROVISIONER, SELECTED
from tests.suite.until import until


class Routing:
    """Makes things on a Ground, which takes them away in the end."""

    def __init__(self, ground: Ground, driver: str = DYNAMIC_PROVISIONER) -> None:
        self.ground = ground
        self.driver = driver
        self._count = 0

    def storage_class(
        self,
        mode: str = "WaitForFirstConsumer",
        suffix: str = "dyn",
        allowed: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        name = f"{self.ground.unique}-{suffix}"
        body: dict[str, Any] = {
            "metadata": {"name": name},
            "provisioner": self.driver,
            "volumeBindingMode": mode,
        }
        if allowed:
            body["allowedTopologies"] = [
                {"matchLabelExpressions": [{"key": k, "values": v} for k, v in one.items()]}
                for one in allowed
            ]
        self.ground.plane.request("POST", CLASSES, body)
        self.ground.adopt(f"{CLASSES}/{name}")
        return name

    def claim(
        self,
        class_name: str,
        size: str = "1Gi",
        *,
        selected: str | None = None,
        label: str | None = None,
        provisioner: str | None = None,
        wait: bool = True,
        adopt: bool = True,
    ) -> Claim:
        """Returned once kube-controller-manager asks for a volume, where it is to be so.

        `provisioner`: written here and now, as are the others; else that controller does it.
        """
        self._count += 1
        name = f"{self.ground.unique}-claim-{self._count}"
        notes = {PROVISIONER: provisioner, SELECTED: selected}
        body = {
            "metadata": {
                "name": name,
                "annotations": {key: value for key, value in notes.items() if value is not None},
                "labels": {"example.com/kept": "yes"} | ({NODE_LABEL: label} if label else {}),
            },
            "spec": {
                "storageClassName": class_name,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
            },
        }
        made: Claim = self.ground.plane.request("POST", CLAIMS, body)
        if adopt:
            self.ground.adopt(f"{CLAIMS}/{name}")
        if wait and selected:
            return self.until(made, lambda c: PROVISIONER in c["metadata"].get("annotations", {}))
        return made

    def capacity(self, class_name: str, node: str, size: str, hostname: str | None = None) -> None:
        """As the node's agent publishes it; again for another size."""
        name = f"{self.ground.unique}-{class_name[-8:]}-{node[-8:]}"
        path = f"{CAPACITIES}/{name}"
        sizes = {"capacity": size, "maximumVolumeSize": size}
        if self.ground.get(CAPACITIES, name) is not None:
            self.ground.patch(path, sizes)
            return
        body = {
            "metadata": {
                "name": name,
                "labels": {
                    NODE_LABEL: node_key(node),
                    "csi.storage.k8s.io/drivername": self.driver.replace("/", "_"),
                    "csi.storage.k8s.io/managed-by": "localvolume",
                },
            },
            "storageClassName": class_name,
            "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": hostname or node}},
            **sizes,
        }
        self.ground.plane.request("POST", CAPACITIES, body)
        self.ground.adopt(path)

    def pod(self, claim: Claim, *nodes: str) -> str:
        """One that uses the claim and may run on these nodes."""
        name = claim["metadata"]["name"].replace("claim", "pod")
        asked = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
        terms = [{"matchExpressions": [asked]}]
        body = {
            "metadata": {"name": name},
            "spec": {
                "containers": [{"name": "main", "image": "registry.example/none"}],
                "volumes": [
                    {
                        "name": "data",
                        "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]},
                    }
                ],
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": terms
                        }
                    }
                },
            },
        }
        self.ground.plane.request("POST", PODS, body)
        self.ground.adopt(f"{PODS}/{name}")
        return str(name)

    def volume_for(self, claim: Claim, node: str, **metadata: Any) -> Volume:
        """A PersistentVolume made for the claim, as an agent of ours makes it."""
        name = f"pvc-{claim['metadata']['uid']}"
        meta = {
            "name": name,
            "labels": {NODE_LABEL: node_key(node)},
            "annotations": {"pv.kubernetes.io/provisioned-by": self.driver, POOL: "fast/1"},
        } | metadata
        asked = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        body = {
            "metadata": meta,
            "spec": {
                "capacity": claim["spec"]["resources"]["requests"],
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": claim["spec"]["storageClassName"],
                "local": {"path": f"/mnt/{name}"},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": "default",
                    "name": claim["metadata"]["name"],
                    "uid": claim["metadata"]["uid"],
                },
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [asked]}]}
                },
            },
        }
        made: Volume = self.ground.plane.request("POST", VOLUMES, body)
        self.ground.adopt(f"/api/v1/persistentvolumes/{name}")
        return made

    # --- looking and changing ------------------------------------------------------------------

    def now(self, claim: Claim) -> Claim:
        return self.ground.get(CLAIMS, claim["metadata"]["name"]) or {"metadata": {}}

    def until(self, claim: Claim, wanted: Any) -> Claim:
        return self.ground.until(lambda: self.now(claim), wanted)

    def label(self, claim: Claim) -> str | None:
        found: str | None = self.now(claim)["metadata"].get("labels", {}).get(NODE_LABEL)
        return found

    def notes(self, claim: Claim) -> dict[str, str]:
        found: dict[str, str] = self.now(claim)["metadata"].get("annotations", {})
        return found

    def routed(self, claim: Claim, node: str | None) -> None:
        """Once its label says so; nothing else of it was touched."""
        wanted = None if node is None else node_key(node)
        self.ground.until(lambda: self.label(claim), lambda label: label == wanted)
        assert self.now(claim)["metadata"]["labels"]["example.com/kept"] == "yes"

    def change(
        self,
        claim: Claim,
        annotations: Mapping[str, str | None] | None = None,
        labels: Mapping[str, str | None] | None = None,
    ) -> None:
        metadata = {"annotations": annotations or {}, "labels": labels or {}}
        self.ground.patch(f"{CLAIMS}/{claim['metadata']['name']}", {"metadata": metadata})

    def select(self, claim: Claim, node: str | None) -> None:
        """As the scheduler writes it."""
        self.change(claim, {SELECTED: node})

    def settle(self) -> None:
        """Until a claim that was made later than all others was routed, twice over."""
        for _ in range(2):
            sample = self.claim(
                self.sample_class(), selected=self.sample_node(), provisioner=DYNAMIC_PROVISIONER
            )
            self.routed(sample, self.sample_node())

    def sample_class(self) -> str:
        name = f"{self.ground.unique}-sample"
        if self.ground.get(CLASSES, name) is None:
            Routing(self.ground).storage_class(suffix="sample")
        return name

    def sample_node(self) -> str:
        name = f"{self.ground.unique}-sample"
        if self.ground.get(NODES, name) is None:
            self.ground.node("sample")
        return name


def seconds_until(wanted: Any, limit: float, pause: float = 0.002) -> float:
    """How long it took; fails after the limit."""
    began = time.monotonic()
    until(wanted, seconds=limit, every=pause)
    return time.monotonic() - began
