"""What a stolen token of the controller is good for beyond what the controller does: nothing.

Each attack is tried on the API server, with the policies as the chart renders them; beside it what
the controller itself has to do is still allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import Values, render
from tests.cluster.support_accounts import Caller, token
from tests.cluster.support_objects import Objects
from tests.cluster.support_rights import TEMPLATES, Rights, sample_spec
from tests.suite.api import CLAIMS, DRIVERS, EVENTS, MERGE, VOLUMES
from tests.suite.names import NODE_LABEL, PROVISIONED_BY, SELECTED
from tests.suite.until import until

pytestmark = pytest.mark.needs("controlplane")

Object = dict[str, Any]

FINALIZER = "localvolume.dev/volume"
OTHERS = "example.com/backup"
LOST_SINCE = "localvolume.dev/node-lost-since"
STATIC = "local-volume-provisioner-node-a"
FLEX = "localvolume.dev/flexvolume"
FLEXVOLUME: Object = {"local": None, "nodeAffinity": None, "flexVolume": {"driver": FLEX}}
COMPONENT = "localvolume-controller"
LOST = "lost-with-its-node"
"""The class whose claims and volumes the controller may delete."""

VALUES: Values = {
    "controller": {"storageClassNames": [LOST], "dynamicProvisioners": ["openebs.io/local"]},
    "flexvolume": {"driver": "bindmount"},
}


@dataclass(frozen=True)
class Stolen:
    """The token of the controller, and objects of others that it is tried on."""

    rights: Rights
    objects: Objects
    caller: Caller
    name: str

    def volume(
        self,
        which: str,
        storage_class: str = "any",
        *,
        node: str = "",
        by: str = "",
        finalizers: tuple[str, ...] = (),
        **source: Any,
    ) -> str:
        """The path of a new PersistentVolume."""
        labels = {NODE_LABEL: node} if node else {}
        meta = {
            "name": f"{self.name}-{which}",
            "labels": {**labels, "example.com/tier": "gold"},
            "annotations": {"example.com/owner": "a", **({PROVISIONED_BY: by} if by else {})},
            "finalizers": list(finalizers),
        }
        spec = sample_spec("node-a", storageClassName=storage_class, **source)
        made = self.objects.make(VOLUMES, {"metadata": meta, "spec": spec})
        return f"{VOLUMES}/{made['metadata']['name']}"

    def claim(self, which: str, storage_class: str, volume: str = "", **more: Any) -> str:
        """The path of a new claim, on that volume where one is given."""
        spec = {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Mi"}},
            **({"volumeName": volume} if volume else {}),
        }
        body = {"metadata": {"name": f"{self.name}-{which}", **more}, "spec": spec}
        return f"{CLAIMS}/{self.objects.make(CLAIMS, body)['metadata']['name']}"

    def finalizers(self, path: str) -> list[str]:
        found: list[str] = self.objects.get(path)["metadata"].get("finalizers", [])
        return found

    def refused(self, method: str, path: str, body: Any = None) -> str:
        return self.caller.refusal(method, path, body)


@pytest.fixture(scope="module")
def rights(control_plane: ControlPlane) -> Iterator[Rights]:
    manifests = render(VALUES, release="stolen", namespace="default", only=TEMPLATES)
    with Rights(control_plane, manifests) as made:
        yield made


@pytest.fixture
def stolen(rights: Rights, objects: Objects, unique: str) -> Stolen:
    caller = Caller(rights.plane, token(rights.plane, rights.controller))
    return Stolen(rights, objects, caller, unique)


def label(value: str | None) -> Object:
    return {"metadata": {"labels": {NODE_LABEL: value}}}


def note(name: str, value: str | None) -> Object:
    return {"metadata": {"annotations": {name: value}}}


def finalizers(*names: str) -> Object:
    return {"metadata": {"finalizers": list(names)}}


def test_the_expressions_are_sound(rights: Rights) -> None:
    rights.check_types()


# --- PersistentVolumes ---------------------------------------------------------------------------


def test_it_deletes_volumes_of_listed_classes_alone(stolen: Stolen) -> None:
    ours = stolen.volume("ours", node="node-a", by=STATIC)
    host = stolen.volume("host", local=None, nodeAffinity=None, hostPath={"path": "/srv"})
    for path in (ours, host):
        assert "classes in controller.storageClassNames" in stolen.refused("DELETE", path)
    for path in (stolen.volume("lost", LOST), stolen.volume("flex", **FLEXVOLUME)):
        assert stolen.refused("DELETE", path) == ""


def test_it_touches_no_volume_of_somebody_else(stolen: Stolen) -> None:
    for path in (stolen.volume("bare"), stolen.volume("others", by="example.com/theirs")):
        assert "one of our agents" in stolen.refused("PATCH", path, label("node-a"))
        assert "one of our agents" in stolen.refused("PATCH", path, note(LOST_SINCE, "x"))
    for path in (
        stolen.volume("static", by=STATIC),
        stolen.volume("replaced", by="openebs.io/local"),
        stolen.volume("made", by="dynamic.localvolume.dev"),
        stolen.volume("listed", LOST),
    ):
        assert stolen.refused("PATCH", path, label("node-a")) == ""
        assert stolen.refused("PATCH", path, note(LOST_SINCE, "x")) == ""


def test_a_volume_keeps_the_label_of_its_node(stolen: Stolen) -> None:
    path = stolen.volume("kept", LOST, node="node-a", by=STATIC)
    for value in ("node-b", "", None):
        said = stolen.refused("PATCH", path, label(value))
        assert "once, and never changes it" in said
    assert stolen.refused("PATCH", path, note(LOST_SINCE, "2026-01-01T00:00:00Z")) == ""


def test_nothing_else_of_a_volume_is_the_controllers_to_change(stolen: Stolen) -> None:
    path = stolen.volume("marked", LOST, node="node-a", by=STATIC)
    owner = {"apiVersion": "v1", "kind": "Node", "name": "none", "uid": "none"}
    for body in (
        {"metadata": {"labels": {"example.com/tier": "lead"}}},
        {"metadata": {"labels": {"example.com/tier": None}}},
        {"metadata": {"labels": {"example.com/new": "x"}}},
        note("example.com/owner", "b"),
        note("example.com/owner", None),
        note("localvolume.dev/identity", "{}"),
        {"metadata": {"ownerReferences": [owner]}},
    ):
        said = stolen.refused("PATCH", path, body)
        assert "changes only the label of a volume's node, and since when" in said, body


def test_our_finalizer_stays(stolen: Stolen) -> None:
    """Without it the object goes before a tenant's data does."""
    takes = "removes only our finalizer"
    both = (FINALIZER, OTHERS)
    kept = stolen.volume("kept", node="node-a", by=STATIC, finalizers=both)
    lost = stolen.volume("lost", LOST, node="node-a", by=STATIC, finalizers=both)
    # Nobody asked for its end.
    assert takes in stolen.refused("PATCH", lost, finalizers(OTHERS))
    for path in (kept, lost):
        stolen.objects.plane.request("DELETE", path)
    try:
        # kube-controller-manager takes the one away that it guards unused volumes with.
        for path in (kept, lost):
            until(partial(stolen.finalizers, path), lambda now: now == list(both))
        # Not of a class whose volumes are given up, and never another's finalizer.
        assert takes in stolen.refused("PATCH", kept, finalizers(OTHERS))
        assert takes in stolen.refused("PATCH", lost, finalizers(FINALIZER))
        assert takes in stolen.refused("PATCH", lost, finalizers())
        assert stolen.refused("PATCH", lost, finalizers(OTHERS)) == ""
    finally:
        for path in (kept, lost):
            stolen.objects.plane.request("PATCH", path, finalizers(), content_type=MERGE)


def test_it_holds_only_flexvolumes(stolen: Stolen) -> None:
    takes = "removes only our finalizer"
    disk = stolen.volume("disk", LOST, node="node-a", by=STATIC)
    flex = stolen.volume("flex", **FLEXVOLUME)
    before = stolen.finalizers(flex)
    assert takes in stolen.refused("PATCH", disk, finalizers(*before, FINALIZER))
    assert takes in stolen.refused("PATCH", flex, finalizers(*before, OTHERS))
    assert stolen.refused("PATCH", flex, finalizers(*before, FINALIZER)) == ""


# --- claims --------------------------------------------------------------------------------------


def test_it_deletes_claims_of_listed_classes_alone(stolen: Stolen) -> None:
    deletes = "deletes only claims that have a volume"
    assert deletes in stolen.refused("DELETE", stolen.claim("any", "any", "none"))
    assert deletes in stolen.refused("DELETE", stolen.claim("waits", LOST))
    beta = {"annotations": {"volume.beta.kubernetes.io/storage-class": "any"}}
    assert deletes in stolen.refused("DELETE", stolen.claim("beta", LOST, "none", **beta))
    assert stolen.refused("DELETE", stolen.claim("lost", LOST, "none")) == ""


def test_of_a_claim_it_changes_where_it_goes_alone(stolen: Stolen) -> None:
    changes = "removes its selected node"
    notes = {"example.com/owner": "a", SELECTED: "node-a"}
    path = stolen.claim("one", "any", annotations=notes, labels={"app": "one"})
    for body in (
        {"metadata": {"labels": {"app": "two"}}},
        {"metadata": {"labels": {"app": None}}},
        {"metadata": {"labels": {"new": "x"}}},
        note("example.com/owner", "b"),
        note("example.com/owner", None),
        note("volume.kubernetes.io/storage-provisioner", "example.com/theirs"),
        note(SELECTED, "node-b"),
    ):
        assert changes in stolen.refused("PATCH", path, body), body
    other = stolen.claim("other", "any")
    assert changes in stolen.refused("PATCH", other, note(SELECTED, "node-a"))
    for body in (label("node-a"), note(SELECTED, None)):
        assert stolen.refused("PATCH", path, body) == ""


# --- what else it may write ----------------------------------------------------------------------


def test_it_makes_no_other_csidriver(stolen: Stolen) -> None:
    """The scheduler and kubelet act by what another driver's object says."""

    def driver(name: str) -> Object:
        return {"metadata": {"name": name}, "spec": {"attachRequired": False}}

    said = stolen.refused("POST", DRIVERS, driver("ebs.csi.aws.com"))
    assert "and no other" in said
    said = stolen.refused("POST", DRIVERS, driver("dynamic.localvolume.dev"))
    assert said == "" or "already exists" in said


def event(name: str, kind: str, component: str = COMPONENT, reporter: str = COMPONENT) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": kind, "name": "x", "namespace": "default"},
        "reason": "Said",
        "message": "so",
        "type": "Warning",
        "source": {"component": component, "host": "x"},
        "reportingComponent": reporter,
        "reportingInstance": "x",
    }


def test_it_speaks_in_its_own_name_alone(stolen: Stolen) -> None:
    name = f"{stolen.name}-new"
    for one in (
        event(name, "PersistentVolume", component="kubelet"),
        event(name, "PersistentVolume", reporter="kubelet"),
        event(name, "PersistentVolume", "local-volume-provisioner", "local-volume-provisioner"),
    ):
        assert "only in its own name" in stolen.refused("POST", EVENTS, one)
    assert "only about volumes and claims" in stolen.refused("POST", EVENTS, event(name, "Node"))
    for kind in ("PersistentVolume", "PersistentVolumeClaim"):
        assert stolen.refused("POST", EVENTS, event(name, kind)) == ""


def test_it_changes_nothing_that_another_said(stolen: Stolen) -> None:
    theirs = event(f"{stolen.name}-theirs", "PersistentVolume", "kubelet", "kubelet")
    own = event(f"{stolen.name}-own", "PersistentVolume")
    paths = [
        f"{EVENTS}/{stolen.objects.make(EVENTS, one)['metadata']['name']}" for one in (theirs, own)
    ]
    taken = {"source": {"component": COMPONENT}, "reportingComponent": COMPONENT, "message": "no"}
    about = {"involvedObject": {"name": "y"}}
    assert "may not change an Event of another" in stolen.refused("PATCH", paths[0], taken)
    assert "or what an Event is about" in stolen.refused("PATCH", paths[1], about)
    assert stolen.refused("PATCH", paths[1], {"count": 2}) == ""
