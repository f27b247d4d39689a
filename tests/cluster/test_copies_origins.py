"""Whose content a claim gets: that of objects of its own namespace which are bound both ways."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from localvolume.dynamic.model import Origin
from localvolume.dynamic.origins import Origins
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.objects import DataSource, Meta, PersistentVolumeClaim, PVCSpec
from localvolume.volumes.snapshots import MODE_CHANGE
from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_objects import Objects, pause
from tests.cluster.support_snapshots import CONTENTS, SNAPSHOTS, kinds_of_snapshots
from tests.suite.api import CLAIMS, MERGE, VOLUMES
from tests.suite.names import CSI, NODE_LABEL
from tests.suite.until import until

pytestmark = pytest.mark.needs("controlplane", "snapshots")

Object = dict[str, Any]

NODE = "n1"


@pytest.fixture(scope="module", autouse=True)
def kinds(control_plane: ControlPlane) -> Iterator[None]:
    with kinds_of_snapshots(control_plane):
        yield


def asked(plane: ControlPlane, source: DataSource) -> Origin:
    """What the agent finds out about a claim in the namespace `default`."""
    claim = PersistentVolumeClaim(
        metadata=Meta(name="copy", namespace="default", uid="1"), spec=PVCSpec(data_source=source)
    )

    async def ask() -> Origin:
        access = find_access(str(plane.kubeconfig))
        async with Client(access, user_agent="test") as client:
            return await Origins(client, NODE, lambda: None).ask(claim)

    return asyncio.run(ask())


# --- VolumeSnapshots -----------------------------------------------------------------------------


class Snapshots:
    """A VolumeSnapshot and its content, as the snapshot-controller and an agent leave them."""

    def __init__(self, objects: Objects, unique: str) -> None:
        self.objects, self.plane, self.unique = objects, objects.plane, unique
        of = {"apiVersion": "snapshot.storage.k8s.io/v1", "metadata": {"name": unique}}
        given = {"persistentVolumeClaimName": "any"}
        self.snapshot = objects.make(
            SNAPSHOTS, {**of, "kind": "VolumeSnapshot", "spec": {"source": given}}
        )
        self.body: Object = {
            **of,
            "kind": "VolumeSnapshotContent",
            "spec": {
                "driver": CSI,
                "deletionPolicy": "Retain",
                "source": {"volumeHandle": "pvc-9"},
                "volumeSnapshotRef": {
                    "kind": "VolumeSnapshot",
                    "namespace": "default",
                    "name": unique,
                    "uid": self.snapshot["metadata"]["uid"],
                },
            },
        }

    def told(self, status: Object, *, content: Object | None = None, **meta: Any) -> Origin:
        """With that status of the content (None: it is not there), and `meta` of it."""
        if content is not None:
            notes = {NODE_LABEL: NODE, **meta.pop("annotations", {})}
            notes = {key: value for key, value in notes.items() if value}
            body = {**self.body, "metadata": {"name": self.unique, "annotations": notes, **meta}}
            body["spec"] = {**self.body["spec"], **content}
            self.objects.make(CONTENTS, body)
            said = {"snapshotHandle": "csi-1", "readyToUse": True, **status}
            self._status(CONTENTS, said)
        self._status(SNAPSHOTS, {"boundVolumeSnapshotContentName": self.unique, "readyToUse": True})
        return self.ask()

    def ask(self) -> Origin:
        source = DataSource(
            api_group="snapshot.storage.k8s.io", kind="VolumeSnapshot", name=self.unique
        )
        return asked(self.plane, source)

    def _status(self, where: str, status: Object) -> None:
        path = f"{where}/{self.unique}/status"
        self.plane.request("PATCH", path, {"status": status}, content_type=MERGE)


@pytest.fixture
def snapshots(objects: Objects, unique: str) -> Snapshots:
    return Snapshots(objects, unique)


def test_a_snapshot_that_is_ready(snapshots: Snapshots) -> None:
    assert "is not ready yet" in snapshots.ask().problem
    found = snapshots.told({}, content={})
    assert found == Origin(handle="csi-1", snapshot=True, cut_of="pvc-9")


def test_one_of_which_the_volume_mode_may_be_another(snapshots: Snapshots) -> None:
    assert snapshots.told({}, content={}, annotations={MODE_CHANGE: "true"}).other_mode


@pytest.mark.parametrize(
    ("owner", "why"),
    [("n2", "is said to be on node n2"), ("", "is said to be on no node yet")],
)
def test_what_another_nodes_agent_says_of_a_snapshot(
    snapshots: Snapshots, owner: str, why: str
) -> None:
    """It may have taken the content of a tenant, and have named another tenant's snapshot."""
    found = snapshots.told({}, content={}, annotations={NODE_LABEL: owner})
    assert why in found.problem
    assert found.handle == ""


@pytest.mark.parametrize(
    ("status", "content", "why"),
    [
        pytest.param({}, None, "has lost its content", id="gone"),
        pytest.param({"readyToUse": False}, {}, "is not ready yet", id="not-ready"),
        pytest.param({"snapshotHandle": None}, {}, "is not ready yet", id="without-a-handle"),
        pytest.param({}, {"driver": "ebs.csi.aws.com"}, "is one of ebs.csi.aws.com", id="driver"),
        pytest.param(
            {},
            {"volumeSnapshotRef": {"namespace": "theirs", "name": "s", "uid": "u"}},
            "does not name",
            id="of-another-namespace",
        ),
    ],
)
def test_no_snapshot(
    snapshots: Snapshots, status: Object, content: Object | None, why: str
) -> None:
    found = snapshots.told(status, content=content)
    assert why in found.problem
    assert found.handle == ""


def test_the_content_of_an_earlier_one_of_that_name(snapshots: Snapshots) -> None:
    """Whoever may make a VolumeSnapshot does not get what another of that name had."""
    ref = {**snapshots.body["spec"]["volumeSnapshotRef"], "uid": "earlier"}
    assert "does not name" in snapshots.told({}, content={"volumeSnapshotRef": ref}).problem


def test_there_is_no_snapshot(control_plane: ControlPlane, unique: str) -> None:
    source = DataSource(api_group="snapshot.storage.k8s.io", kind="VolumeSnapshot", name=unique)
    assert "does not exist" in asked(control_plane, source).problem


# --- claims --------------------------------------------------------------------------------------


def clone_of(name: str) -> DataSource:
    return DataSource(kind="PersistentVolumeClaim", name=name)


def bound_claim(objects: Objects, unique: str, source: Object, node: str = NODE) -> Object:
    """A claim and its volume, bound by kube-controller-manager."""
    some = {"storage": "1Gi"}
    modes = {"accessModes": ["ReadWriteOnce"], "storageClassName": unique}
    objects.make(
        VOLUMES,
        {
            "metadata": {"name": unique, "labels": {NODE_LABEL: node} if node else {}},
            "spec": {
                **modes,
                **source,
                "capacity": some,
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": "default", "name": unique},
            },
        },
    )
    claim = objects.make(
        CLAIMS,
        {"metadata": {"name": unique}, "spec": {**modes, "resources": {"requests": some}}},
    )
    path = f"{CLAIMS}/{unique}"
    until(lambda: objects.get(path)["status"]["phase"], lambda phase: phase == "Bound")
    return claim


OURS = {"csi": {"driver": CSI, "volumeHandle": "csi-2"}}


def test_a_claim_that_is_bound(objects: Objects, unique: str) -> None:
    claim = bound_claim(objects, unique, OURS)
    found = asked(objects.plane, clone_of(unique))
    assert (found.handle, found.snapshot, found.problem) == ("csi-2", False, "")
    assert found.claim is not None
    assert found.claim.metadata.uid == claim["metadata"]["uid"]


@pytest.mark.parametrize(
    ("node", "why"), [("n2", "is on node n2"), ("", "is said to be on no node yet")]
)
def test_a_claim_whose_volume_another_node_may_have(
    objects: Objects, unique: str, node: str, why: str
) -> None:
    """Who has that node's token made the volume's object, and may have named any handle."""
    bound_claim(objects, unique, OURS, node)
    found = asked(objects.plane, clone_of(unique))
    assert (found.handle, why in found.problem) == ("", True)


def test_a_claim_that_is_being_deleted(objects: Objects, unique: str) -> None:
    bound_claim(objects, unique, OURS)
    path = f"{CLAIMS}/{unique}"
    kept = {"metadata": {"finalizers": ["example.com/kept"]}}
    objects.plane.request("PATCH", path, kept, content_type=MERGE)
    objects.plane.request("DELETE", path)
    found = asked(objects.plane, clone_of(unique))
    assert (found.handle, "is being deleted" in found.problem) == ("", True)
    assert found.claim is not None
    objects.plane.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)


@pytest.mark.parametrize(
    "source",
    [
        {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}},
        {"hostPath": {"path": "/none"}},
    ],
    ids=["another-driver", "no-driver"],
)
def test_a_claim_whose_volume_is_not_the_drivers(
    objects: Objects, unique: str, source: Object
) -> None:
    bound_claim(objects, unique, source)
    found = asked(objects.plane, clone_of(unique))
    assert (found.handle, "only those are cloned" in found.problem) == ("", True)


def test_a_claim_without_a_volume(objects: Objects, unique: str) -> None:
    assert "does not exist" in asked(objects.plane, clone_of(unique)).problem
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": unique,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    objects.make(CLAIMS, {"metadata": {"name": unique}, "spec": spec})
    assert "has no volume yet" in asked(objects.plane, clone_of(unique)).problem


@pytest.mark.parametrize("name", [".", "..", "a/b"])
@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "VolumeSnapshot"])
def test_what_can_be_nothings_name(objects: Objects, unique: str, kind: str, name: str) -> None:
    """The API server takes it in a claim, and knows no object by it."""
    group = {"apiGroup": "snapshot.storage.k8s.io"} if kind == "VolumeSnapshot" else {}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": unique,
        "resources": {"requests": {"storage": "1Gi"}},
        "dataSource": {"kind": kind, "name": name, **group},
    }
    objects.make(CLAIMS, {"metadata": {"name": unique}, "spec": spec})
    source = DataSource(api_group=group.get("apiGroup"), kind=kind, name=name)
    assert "must be lower case" in asked(objects.plane, source).problem


def test_a_claim_that_names_the_volume_of_another(objects: Objects, unique: str) -> None:
    """Anybody may write the name of any volume into a claim."""
    bound_claim(objects, unique, OURS)
    name = f"{unique}-thief"
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": unique,
        "volumeName": unique,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    objects.make(CLAIMS, {"metadata": {"name": name}, "spec": spec})
    assert "has no volume yet" in asked(objects.plane, clone_of(name)).problem
    # Though its phase says otherwise, which nobody but the control plane may write.
    status = {"status": {"phase": "Bound"}}
    pause(objects.plane, "kube-controller-manager")
    try:
        objects.plane.request("PATCH", f"{CLAIMS}/{name}/status", status, content_type=MERGE)
        found = asked(objects.plane, clone_of(name))
    finally:
        objects.plane.resume("kube-controller-manager")
    assert (found.handle, "does not name claim" in found.problem) == ("", True)
