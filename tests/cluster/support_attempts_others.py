"""What a stolen token of node B is tried with about everything else, and what must be said."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.cluster.support_confinement import (
    COMPONENT,
    TAINT,
    Attempt,
    Belongings,
    Object,
    capacity,
    event,
    job,
    labelled,
)
from tests.cluster.support_objects import Objects
from tests.suite.api import CAPACITIES, CLASSES, EVENTS, JOBS, NODES, PODS, VOLUMES
from tests.suite.names import HOSTNAME, NODE_LABEL


def on_capacities(a: Belongings, b: Belongings) -> Iterator[Attempt]:
    touch = f"may not touch the storage capacity of the node {a.node}"
    more = {"capacity": "9Ti"}
    yield Attempt("promise room on A", "PATCH", a.capacity, more, touch)
    yield Attempt("delete the room of A", "DELETE", a.capacity, None, touch)
    yield Attempt("take the room of A", "PATCH", a.capacity, labelled(b.node), touch)
    name = f"{b.node}-new"
    publish = "may publish storage capacity only with the label"
    yield Attempt("give the room of B to A", "PATCH", b.capacity, labelled(a.node), publish)
    new = capacity(name, a.node, b.node)
    yield Attempt("publish room with A's label", "POST", CAPACITIES, new, publish)
    for what, topology in (
        ("on A", {"matchLabels": {HOSTNAME: a.node}}),
        ("everywhere", {}),
        ("on both", terms_of_selector(b.node, a.node)),
    ):
        body = capacity(name, b.node, b.node) | {"nodeTopology": topology}
        only = "may publish only the room of"
        yield Attempt(f"publish room {what}", "POST", CAPACITIES, body, only)
    disks = {"metadata": {"annotations": {"localvolume.dev/disks": '{"disks":[]}'}}}
    yield Attempt("say which disks A has", "PATCH", a.capacity, disks, touch)
    yield Attempt("say which disks B has", "PATCH", b.capacity, disks)
    yield Attempt("publish room of B", "POST", CAPACITIES, capacity(name, b.node, b.node))
    yield Attempt("correct the room of B", "PATCH", b.capacity, more)
    yield Attempt("delete the room of B", "DELETE", b.capacity)


def terms_of_selector(own: str, *more: str) -> Object:
    """A label selector that looks like a node's own, and means more."""
    values = [own, *more]
    return {
        "matchLabels": {HOSTNAME: own},
        "matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": values}],
    }


def on_jobs(a: Belongings, b: Belongings) -> Iterator[Attempt]:
    touch = f"may not touch a Job of the node {a.node}"
    yield Attempt("delete a Job of A", "DELETE", a.job, None, touch)
    yield Attempt("take a Job of A", "PATCH", a.job, labelled(b.node), touch)
    own_label = "may run Jobs only with the label"
    yield Attempt("give a Job of B to A", "PATCH", b.job, labelled(a.node), own_label)
    mislabelled = job(b.node)
    mislabelled["metadata"]["labels"] = {NODE_LABEL: a.node}
    yield Attempt("run a Job with A's label", "POST", JOBS, mislabelled, own_label)
    here = "may run Jobs only on"
    no_access = "a cleaning Job has no access to the API server"
    reads = "a cleaning Job reads directories and devices of its node"
    container = job(b.node)["spec"]["template"]["spec"]["containers"][0]
    secret = {"secretKeyRef": {"name": "x", "key": "y"}}
    for what, pod, said in (
        ("on A", {"nodeSelector": {HOSTNAME: a.node}}, here),
        ("anywhere", {"nodeSelector": {}}, here),
        ("on A past the scheduler", {"nodeName": a.node}, here),
        ("as the controller", {"serviceAccountName": f"{COMPONENT}-controller"}, no_access),
        ("as the old field says", {"serviceAccount": f"{COMPONENT}-controller"}, no_access),
        ("with a token", {"automountServiceAccountToken": True}, no_access),
        ("with a Secret", {"volumes": [{"name": "x", "secret": {"secretName": "x"}}]}, reads),
        ("that begins with another", {"initContainers": [container | {"name": "first"}]}, reads),
        (
            "with a Secret in a variable",
            {"containers": [container | {"env": [{"name": "X", "valueFrom": secret}]}]},
            reads,
        ),
        (
            "with Secrets for variables",
            {"containers": [container | {"envFrom": [{"secretRef": {"name": "x"}}]}]},
            reads,
        ),
    ):
        yield Attempt(f"run a Job {what}", "POST", JOBS, job(b.node, **pod), said)
    template = {"spec": {"template": {"spec": {"nodeSelector": {HOSTNAME: a.node}}}}}
    changes = "an agent changes only labels and annotations of a Job"
    yield Attempt("move a Job to A", "PATCH", b.job, template, changes)
    yield Attempt("run a Job on B", "POST", JOBS, job(b.node))
    yield Attempt("delete a Job of B", "DELETE", b.job)


def on_upstreams_jobs(paths: Mapping[str, str], b: Belongings) -> Iterator[Attempt]:
    """About Jobs without our label: `paths` are those of `upstreams_jobs`."""
    touch = "may not touch a Job of others"
    for name in ("cleanup-a", "backup-b"):
        yield Attempt(f"take the Job {name}", "PATCH", paths[name], labelled(b.node), touch)
        yield Attempt(f"delete the Job {name}", "DELETE", paths[name], None, touch)
    touch = "may not touch a Job of the node"
    yield Attempt("take a Job that A has taken", "DELETE", paths["cleanup-both"], None, touch)
    yield Attempt("take upstream's Job on B", "PATCH", paths["cleanup-b"], labelled(b.node))
    yield Attempt("delete upstream's Job on B", "DELETE", paths["cleanup-b"])


def upstreams_jobs(objects: Objects, a: Belongings, b: Belongings) -> dict[str, str]:
    """A Job that cleans on A, two that clean on B, of which A has labelled one, and one on B that
    does something else."""
    found = {}
    of_b = ("cleanup-b", "cleanup-both", "backup-b")
    for name, node in (("cleanup-a", a.node), *((name, b.node) for name in of_b)):
        body = job(node)
        body["metadata"] = {"name": f"{name}-confined", "labels": {HOSTNAME: node}}
        if name == "cleanup-both":
            body["metadata"]["labels"][NODE_LABEL] = a.node
        found[name] = f"{JOBS}/{objects.make(JOBS, body)['metadata']['name']}"
    return found


def on_nodes(a: Belongings, b: Belongings) -> Iterator[Attempt]:
    own, foreign = f"{NODES}/{b.node}", f"{NODES}/{a.node}"
    other = {"key": "example.com/other", "effect": "NoSchedule"}
    taints = {"spec": {"taints": [other]}}
    touch = f"may not touch the Node {a.node}"
    off = f"an agent removes no taint but {TAINT} from its Node"
    alone = "an agent changes only the taints of its Node"
    gone = {"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "gone"}
    yield Attempt("take the taint off A", "PATCH", foreign, taints, touch)
    yield Attempt("take another taint off B", "PATCH", own, {"spec": {"taints": None}}, off)
    added = {"spec": {"taints": [other, {"key": "x", "effect": "NoExecute"}]}}
    yield Attempt("put a taint on B", "PATCH", own, added, off)
    for what, body in (
        ("label", {"metadata": {"labels": {"x": "y"}}}),
        ("annotate", {"metadata": {"annotations": {"x": "y"}}}),
        ("cordon", {"spec": {"unschedulable": True}}),
        ("hold", {"metadata": {"finalizers": ["example.com/x"]}}),
        ("have the collector take", {"metadata": {"ownerReferences": [gone]}}),
    ):
        yield Attempt(f"{what} B", "PATCH", own, body, alone)
    yield Attempt("take our taint off B", "PATCH", own, taints)


def on_events(a: Belongings, b: Belongings) -> Iterator[Attempt]:
    name = f"{b.node}-said"
    yield Attempt("speak in A's name", "POST", EVENTS, event(name, a.node), "only in its own name")
    for key in ("source", "reportingInstance", "reportingComponent"):
        body = event(name, b.node) | {key: event(name, a.node)[key]}
        if key == "reportingComponent":
            body[key] = "kubelet"
        what = f"speak in another's name, by {key} alone"
        yield Attempt(what, "POST", EVENTS, body, "only in its own name")
    body = event(name, b.node)
    body["source"] = {"component": "kubelet", "host": b.node}
    yield Attempt("speak as the kubelet", "POST", EVENTS, body, "only in its own name")
    for kind, about in (("Pod", "x"), ("Secret", "x"), ("Node", a.node)):
        body = event(name, b.node, kind, about)
        said = "may report Events only about volumes, claims and its own Node"
        yield Attempt(f"speak of a {kind}", "POST", EVENTS, body, said)
    theirs = {"source": {"host": b.node}, "reportingInstance": b.node, "message": "mine"}
    yield Attempt(
        "take over what A said", "PATCH", a.event, theirs, "may not change an Event of another"
    )
    yield Attempt("change what A said", "PATCH", a.event, {"count": 9}, "only in its own name")
    moved = {"involvedObject": {"name": "another"}}
    yield Attempt(
        "say it of another", "PATCH", b.event, moved, "may not change an Event of another"
    )
    yield Attempt("speak of B", "POST", EVENTS, event(name, b.node, "Node", b.node))
    yield Attempt("say it again", "PATCH", b.event, {"count": 2})


def beyond_its_role(a: Belongings, b: Belongings) -> Iterator[Attempt]:
    """What no policy need refuse: no role gives it."""
    cannot = "cannot"
    ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    rows: list[tuple[str, str, str, Any]] = [
        ("read Secrets", "GET", "/api/v1/secrets", None),
        ("say that A is not ready", "PATCH", f"{NODES}/{a.node}/status", ready),
        ("say that B is not ready", "PATCH", f"{NODES}/{b.node}/status", ready),
        ("say that A's volume is free", "PATCH", f"{a.volume}/status", {"status": {}}),
        ("delete a claim of A", "DELETE", a.claim, None),
        ("delete all PersistentVolumes", "DELETE", VOLUMES, None),
        ("run a pod", "POST", PODS, {}),
        ("make a StorageClass", "POST", CLASSES, {}),
        (
            "have the controller's token",
            "POST",
            f"/api/v1/namespaces/default/serviceaccounts/{COMPONENT}-controller/token",
            {"spec": {}},
        ),
    ]
    for what, method, path, body in rows:
        yield Attempt(what, method, path, body, cannot)
