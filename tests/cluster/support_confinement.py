"""Objects of two nodes, and the form of a request that is tried about them with B's token."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_objects import Objects, written_by_controllers
from tests.cluster.support_rights import JOB_IMAGE, sample_spec
from tests.suite.api import CAPACITIES, CLAIMS, EVENTS, JOBS, NODES, VOLUMES
from tests.suite.names import HOSTNAME, NODE_LABEL, SELECTED
from tests.suite.until import until

TAINT = "sig-storage-local-static-provisioner/agent-not-ready"
COMPONENT = "local-volume-provisioner"

Object = dict[str, Any]

MARK: Object = {"metadata": {"annotations": {"tried": "by another node"}}}


@dataclass(frozen=True)
class Attempt:
    """One request; `said` is part of the refusal, "" for what must be allowed."""

    what: str
    method: str
    path: str
    body: Any = None
    said: str = ""


@dataclass(frozen=True)
class Belongings:
    """One object of each kind that is a node's, by its path; made by the administrator."""

    node: str
    volume: str
    claim: str
    capacity: str
    job: str
    event: str
    upstreams: str
    """A PersistentVolume of its affinity without a label."""

    @property
    def paths(self) -> tuple[str, ...]:
        return (
            *(self.volume, self.claim, self.capacity, self.job, self.event, self.upstreams),
            f"{NODES}/{self.node}",
        )


def volume(name: str, label: str = "", **spec: Any) -> Object:
    """A PersistentVolume with that label; the spec is sample_spec's unless it says more."""
    labels = {NODE_LABEL: label} if label else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def job(node: str, **pod: Any) -> Object:
    """A cleaning Job on the node of that name; `pod`: what else its pod's spec says."""
    container = {
        "name": "cleaner",
        "image": JOB_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["localvolume", "clean"],
        "env": [],
        "securityContext": {"privileged": True},
    }
    return {
        "metadata": {"name": f"cleanup-{node}-new", "labels": {NODE_LABEL: node}},
        "spec": {
            # Nothing is to run.
            "suspend": True,
            "backoffLimit": 0,
            "parallelism": 1,
            "completions": 1,
            "template": {
                "metadata": {"labels": {NODE_LABEL: node}},
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": {HOSTNAME: node},
                    "automountServiceAccountToken": False,
                    "containers": [container],
                    "volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}],
                    **pod,
                },
            },
        },
    }


def capacity(name: str, label: str, hostname: str) -> Object:
    return {
        "metadata": {"name": name, "labels": {NODE_LABEL: label}},
        "storageClassName": "none",
        "nodeTopology": {"matchLabels": {HOSTNAME: hostname}},
        "capacity": "1Gi",
    }


def event(name: str, host: str, kind: str = "PersistentVolume", about: str = "none") -> Object:
    return {
        "metadata": {"name": name},
        "involvedObject": {"apiVersion": "v1", "kind": kind, "name": about},
        "reason": "Tried",
        "message": "tried",
        "type": "Normal",
        "source": {"component": COMPONENT, "host": host},
        "reportingComponent": COMPONENT,
        "reportingInstance": host,
    }


def belongings(
    plane: ControlPlane, objects: Objects, node: str, *, labelled: bool = True
) -> Belongings:
    """One of each for a node, which is made too, with two taints."""
    ours = {"key": TAINT, "effect": "NoSchedule"}
    other = {"key": "example.com/other", "effect": "NoSchedule"}
    plane.create_node(node, taints=[ours, other])
    objects.adopt(f"{NODES}/{node}")

    def made(collection: str, body: Object) -> str:
        if not labelled:
            body["metadata"].pop("labels", None)
        return f"{collection}/{objects.make(collection, body)['metadata']['name']}"

    claim = {
        "metadata": {"name": f"{node}-claim", "labels": {NODE_LABEL: node}},
        "spec": {
            "storageClassName": f"{node}-none",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }
    claim["metadata"]["annotations"] = {SELECTED: node}
    old_job = job(node)
    old_job["metadata"]["name"] = f"cleanup-{node}"
    made_for = Belongings(
        node=node,
        volume=made(VOLUMES, volume(f"{node}-pv", node, **sample_spec(node))),
        claim=made(CLAIMS, claim),
        capacity=made(CAPACITIES, capacity(f"{node}-capacity", node, node)),
        job=made(JOBS, old_job),
        event=made(EVENTS, event(f"{node}-event", node)),
        upstreams=made(VOLUMES, volume(f"{node}-upstreams", **sample_spec(node))),
    )
    # From now on nobody else writes to them.
    written_by_controllers(objects, f"{NODES}/{node}")
    for path in (made_for.volume, made_for.upstreams):
        until(partial(objects.get, path), lambda one: one["status"]["phase"] == "Available")
    until(partial(objects.get, made_for.job), lambda one: bool(one["status"].get("conditions")))
    return made_for


def labelled(node: str | None) -> Object:
    return {"metadata": {"labels": {NODE_LABEL: node}}}


def permitted(b: Belongings) -> Iterator[Attempt]:
    """What B's own agent does with its volumes."""
    new = volume(f"{b.node}-new", b.node, **sample_spec(b.node))
    yield Attempt("offer a volume of B", "POST", VOLUMES, new)
    yield Attempt("change a volume of B", "PATCH", b.volume, MARK)
    yield Attempt("delete a volume of B", "DELETE", b.volume)
    yield Attempt("adopt what upstream made on B", "PATCH", b.upstreams, labelled(b.node))


def for_nobody(attempts: Iterable[Attempt]) -> list[Attempt]:
    """The same, for a token that names no node."""
    return [replace(one, said="the token names no node") for one in attempts]
