"""Several nodes with pools, the controller that routes to them, and pods for the real scheduler.

Pods are objects only: what counts is where the scheduler puts them, and where their volumes are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from localvolume.config.sources import Others
from localvolume.volumes.capacity import bytes_of
from localvolume.volumes.marks import DYNAMIC_PROVISIONER
from localvolume_lab.controlplane import RequestFailed
from tests.cluster.support_controller import Ground
from tests.cluster.support_dynamic import PROVISIONER, Claim, DynamicLab, Volume
from tests.cluster.support_objects import Objects
from tests.host.support_devices import unmount
from tests.suite.api import CAPACITIES, MERGE, NODES, PODS
from tests.suite.names import NODE_LABEL, REFUSED, SELECTED
from tests.suite.until import until

T = TypeVar("T")


FULL = "did not have enough free storage"
"""What the scheduler says of a node on which the published room does not hold the claim."""

#: A generous bound: the scheduler lets a pod wait for up to 10 s before it tries again.
SECONDS = 120.0

Object = dict[str, Any]


class Cluster:
    """`node` for each node, `storage_class`, `start`; then `claim` and `pod`."""

    def __init__(self, ground: Ground, objects: Objects, unique: str, directory: Path) -> None:
        self.ground = ground
        self.objects = objects
        self.plane = objects.plane
        self.unique = unique
        self.labs: dict[str, DynamicLab] = {}
        """By the node's name."""
        self.full: dict[str, int] = {}
        """The room of each node's pool while it was empty, in bytes, once it was asked for."""
        self._class_names: set[str] = set()
        self._directory = directory
        self._stack = contextlib.ExitStack()
        self._count = 0

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        # Claims are only let go when no pod is left, and volumes when no agent looks.
        for pod in self._pods():
            self.remove_pod(pod["metadata"]["name"])
        self._stack.close()

    # --- making things -------------------------------------------------------------------------

    def node(self, letter: str, size: int | None = None, **labels: str) -> DynamicLab:
        """A node, not started; with a pool on a filesystem of `size` bytes (None: with none)."""
        directory = self._directory / letter
        directory.mkdir()
        name = f"{self.unique}-{letter}"
        lab = self._stack.enter_context(DynamicLab(self.objects, name, directory))
        lab.class_names = self._class_names
        lab.make_node({"test": self.unique, **labels})
        if size is not None:
            lab.pool(size=size)
        self.labs[lab.node] = lab
        return lab

    def storage_class(self, kind: str = "dyn", *, waits: bool = True, **fields: Any) -> str:
        """A class of the whole cluster; returns its name."""
        some = next(iter(self.labs.values()))
        return some.storage_class(kind, waits=waits, **fields)

    def start(
        self,
        *labs: DynamicLab,
        provisioners: Sequence[str] = (),
        others: Mapping[str, Others] | None = None,
    ) -> None:
        """The controller and the agents of these nodes (of all); `others` by node."""
        for lab in labs or self.labs.values():
            lab.start(others=others[lab.node] if others else Others())
        self.start_controller(provisioners)

    def start_controller(self, provisioners: Sequence[str] = (), *, nowhere: float = 0.5) -> None:
        """It says after `nowhere` seconds that no node takes a claim."""
        self.ground.start(provisioners=provisioners, nowhere=nowhere)

    def measure(self, class_name: str) -> dict[str, int]:
        """The room of every node's empty pool, once all have published it."""
        nodes = [node for node, lab in self.labs.items() if lab.agent is not None]
        found = self.until(lambda: self.rooms(class_name), lambda rooms: set(rooms) == set(nodes))
        self.full |= found
        return self.full

    def heeded(self, class_name: str) -> dict[str, int]:
        """The same, once the scheduler heeds it (for a class that waits)."""
        full = self.measure(class_name)
        probe = self.claim(class_name, 1 << 50)
        pod = self.pod(probe)
        self.until(lambda: self.said(pod), lambda text: FULL in text)
        self.remove_pod(pod)
        self.remove_claim(probe)
        return full

    def claim(self, class_name: str, size: int) -> Claim:
        """A claim for so many bytes, routed by nobody yet."""
        self._count += 1
        some = next(iter(self.labs.values()))
        name = f"{self.unique}-claim-{self._count}"
        return some.claim(class_name, size=str(size), node=None, name=name)

    def pod(self, claim: Claim, *, on: DynamicLab | None = None, rather: str = "") -> str:
        """A pod that uses the claim: on that node, or `rather` on the one of that name, or on any
        of the test's. Returns its name."""
        self._count += 1
        name = f"{self.unique}-pod-{self._count}"
        chosen = {"test": self.unique} | ({"kubernetes.io/hostname": on.node} if on else {})
        asked = {"key": "kubernetes.io/hostname", "operator": "In", "values": [rather]}
        preference = {"weight": 100, "preference": {"matchExpressions": [asked]}}
        wish = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
        source = {"claimName": claim["metadata"]["name"]}
        body = {
            "metadata": {"name": name, "labels": {"test": self.unique}},
            "spec": {
                "nodeSelector": chosen,
                "affinity": wish if rather else {},
                "containers": [{"name": "main", "image": "registry.example/none"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": source}],
            },
        }
        self.objects.make(PODS, body)
        return name

    def remove_pod(self, name: str) -> None:
        with contextlib.suppress(RequestFailed):
            self.plane.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})

    def remove_claim(self, claim: Claim) -> None:
        some = next(iter(self.labs.values()))
        some.delete(claim)

    def remove_node(self, lab: DynamicLab) -> None:
        self.plane.request("DELETE", f"{NODES}/{lab.node}")

    def unmount_pool(self, lab: DynamicLab, name: str = "fast") -> None:
        """The pool's filesystem is away from now on."""
        unmount(lab.directory / f"pool-{name}")

    def edit_capacity(self, lab: DynamicLab, class_name: str, size: str) -> None:
        """What is published of a node is made another; with no agent there, it stays so."""
        for there in self.capacities(lab.node, class_name):
            path = f"{CAPACITIES}/{there['metadata']['name']}"
            sizes = {"capacity": size, "maximumVolumeSize": size}
            self.plane.request("PATCH", path, sizes, content_type=MERGE)

    # --- looking -------------------------------------------------------------------------------

    def capacities(self, node: str = "", class_name: str = "") -> list[Object]:
        """The published objects of this test's classes (of that node or class)."""
        found: list[Object] = self.plane.request("GET", CAPACITIES)["items"]
        return [
            there
            for there in found
            if there["storageClassName"] in ({class_name} if class_name else self._class_names)
            and there["metadata"]["labels"].get(NODE_LABEL) in ({node} if node else self.labs)
        ]

    def rooms(self, class_name: str) -> dict[str, int]:
        """The largest volume of the class that nodes publish, in bytes by node."""
        return {
            there["metadata"]["labels"][NODE_LABEL]: bytes_of(there["maximumVolumeSize"]) or 0
            for there in self.capacities(class_name=class_name)
        }

    def now(self, claim: Claim) -> Claim:
        found = next(iter(self.labs.values())).read_claim(claim)
        assert found is not None, "the claim is gone"
        return found

    def label(self, claim: Claim) -> str | None:
        label: str | None = self.now(claim)["metadata"].get("labels", {}).get(NODE_LABEL)
        return label

    def selected(self, claim: Claim) -> str:
        return str(self.now(claim)["metadata"].get("annotations", {}).get(SELECTED, ""))

    def refused(self, claim: Claim) -> str:
        """Which node gave it back, and when; "" for none."""
        return str(self.now(claim)["metadata"].get("annotations", {}).get(REFUSED, ""))

    def bound(self, claim: Claim) -> Volume:
        """The claim's volume, once it is bound to it."""
        name = f"pvc-{claim['metadata']['uid']}"
        self.until(lambda: self.now(claim)["status"]["phase"], lambda phase: phase == "Bound")
        assert self.now(claim)["spec"]["volumeName"] == name
        volume = next(iter(self.labs.values())).volume(name)
        assert volume is not None
        return volume

    def pending(self, claim: Claim) -> None:
        assert self.now(claim)["status"]["phase"] == "Pending"

    def placed(self, pod: str) -> str:
        """The node that the pod was assigned to, once it was."""

        def node_of() -> str:
            return str(self.objects.get(f"{PODS}/{pod}")["spec"].get("nodeName", ""))

        return self.until(node_of, bool)

    def lives_on(self, claim: Claim, lab: DynamicLab, pod: str = "") -> Volume:
        """The claim's volume, once it is there and all agree that it is on that node: affinity,
        labels, the pool on its disk, and the pod, if there is one."""
        volume = self.bound(claim)
        assert node_of(volume) == lab.node
        assert volume["metadata"]["labels"][NODE_LABEL] == lab.node
        self.until(lambda: self.label(claim), lambda label: label == lab.node)
        where = lab.path_of(volume)
        assert where.is_dir()
        assert where.is_relative_to(lab.directory)
        if pod:
            assert self.placed(pod) == lab.node
        return volume

    def said(self, pod: str) -> str:
        """Why the scheduler has not assigned the pod, "" where it has not said so."""
        conditions = self.objects.get(f"{PODS}/{pod}")["status"].get("conditions", [])
        return "".join(c.get("message", "") for c in conditions if c["type"] == "PodScheduled")

    def volumes(self) -> list[Volume]:
        return next(iter(self.labs.values())).volumes()

    def used(self) -> dict[str, int]:
        """What the volumes of each node amount to, in bytes."""
        sums = dict.fromkeys(self.labs, 0)
        for volume in self.volumes():
            sums[node_of(volume)] += bytes_of(volume["spec"]["capacity"]["storage"]) or 0
        return sums

    def routed(self, claim: Claim) -> str:
        """The node that it is routed to, once it is."""
        return self.until(lambda: self.label(claim), bool) or ""

    def asked_for(self, claim: Claim) -> None:
        """Wait until kube-controller-manager asks for its volume."""
        self.until(
            lambda: self.now(claim)["metadata"].get("annotations", {}),
            lambda notes: "volume.kubernetes.io/storage-provisioner" in notes,
        )

    def none_overfull(self) -> dict[str, int]:
        """What is used, which is no more than there was room for."""
        used = self.used()
        assert all(used[node] <= room for node, room in self.full.items()), (used, self.full)
        return used

    def events(self, claim: Claim, reason: str) -> list[Object]:
        found = next(iter(self.labs.values())).events(claim["metadata"]["name"])
        return [event for event in found if event["reason"] == reason]

    def event(self, claim: Claim, reason: str, text: str) -> Object:
        """The Event of that reason, once there is one with that text."""

        def fitting() -> list[Object]:
            return [one for one in self.events(claim, reason) if text in one["message"]]

        return self.until(fitting, bool)[0]

    def until(
        self, read: Callable[[], T], wanted: Callable[[T], Any], seconds: float = SECONDS
    ) -> T:
        """What `read` returns once it is `wanted`; fails after `seconds`, or with what runs."""
        __tracebackhide__ = True

        def check() -> None:
            for one in (self.ground.controller, *(lab.agent for lab in self.labs.values())):
                if one is not None:
                    one.check()

        return until(
            read,
            wanted,
            seconds=seconds,
            check=check,
            said=lambda: "\n".join(["the logs:", *self.ground.log()[-60:]]),
        )

    def _pods(self) -> list[Object]:
        query = f"labelSelector=test%3D{self.unique}"
        found: list[Object] = self.plane.request("GET", f"{PODS}?{query}")["items"]
        return found


def node_of(volume: Volume) -> str:
    """The one node that the volume's affinity means, by its hostname label."""
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    (asked,) = term["matchExpressions"]
    assert (asked["key"], asked["operator"]) == ("kubernetes.io/hostname", "In")
    (name,) = asked["values"]
    return str(name)


@contextlib.contextmanager
def cluster_for(
    ground: Ground, objects: Objects, unique: str, directory: Path
) -> Iterator[Cluster]:
    assert PROVISIONER == DYNAMIC_PROVISIONER
    with Cluster(ground, objects, unique, directory) as cluster:
        yield cluster


__all__ = ["FULL", "Cluster", "cluster_for", "node_of"]
