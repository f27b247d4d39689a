"""Volumes of our CSI driver in the commands for people, on a real control plane."""

from __future__ import annotations

import contextlib
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.cli.main import main
from localvolume.volumes.marks import CSI_DRIVER
from localvolume_lab.controlplane import ControlPlane, RequestFailed
from tests.cluster.support_dynamic import DynamicLab
from tests.cluster.support_objects import Objects
from tests.cluster.support_seeing import Seeing
from tests.cluster.support_snapshots import forget_kinds
from tests.suite.api import CLAIMS, CLASSES, DRIVERS, MERGE, VOLUMES
from tests.suite.names import FINALIZER, HOSTNAME, NODE_LABEL, POOL, PROVISIONED_BY
from tests.suite.until import until

pytestmark = pytest.mark.needs("controlplane")

ATTRIBUTES_CLASSES = "/apis/storage.k8s.io/v1/volumeattributesclasses"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
OTHER = "other.example.com"


@pytest.fixture
def seeing(control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> Seeing:
    return Seeing(control_plane, capsys)


@pytest.fixture
def driver(control_plane: ControlPlane) -> Iterator[str]:
    """The path of the CSIDriver, which is there; it goes with the test."""
    path = f"{DRIVERS}/{CSI_DRIVER}"
    body = {"metadata": {"name": CSI_DRIVER}, "spec": {"attachRequired": False}}
    with contextlib.suppress(RequestFailed):
        control_plane.request("DELETE", path)
    control_plane.request("POST", DRIVERS, body)
    yield path
    with contextlib.suppress(RequestFailed):
        control_plane.request("DELETE", path)


def made(objects: Objects, name: str, node: str, cls: str, handle: str = "") -> str:
    """A PersistentVolume as an agent of that node makes it; with a handle of its own, as
    external-provisioner does and the controller labels it."""
    term = {"key": HOSTNAME, "operator": "In", "values": [node]}
    body = {
        "metadata": {
            "name": name,
            "labels": {NODE_LABEL: node},
            "annotations": {PROVISIONED_BY: CSI_DRIVER, **({} if handle else {POOL: "fast/id"})},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": cls,
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": CSI_DRIVER, "volumeHandle": handle or name, "fsType": "ext4"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }
    objects.make(VOLUMES, body)
    return name


def claimed(objects: Objects, name: str, cls: str, volume: str) -> None:
    body = {
        "metadata": {"name": name},
        "spec": {
            "storageClassName": cls,
            "volumeName": volume,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    objects.make(CLAIMS, body)
    in_phase(objects, f"{CLAIMS}/{name}", "Bound")


def in_phase(objects: Objects, path: str, phase: str) -> None:
    until(lambda: objects.get(path)["status"].get("phase"), lambda found: found == phase)


def register(objects: Objects, node: str, *drivers: str) -> None:
    """What the node's kubelet writes once these are registered with it."""
    own = [{"name": one, "nodeID": f"id-of-{one}", "topologyKeys": [HOSTNAME]} for one in drivers]
    names = {one["metadata"]["name"] for one in objects.get(CSI_NODES)["items"]}
    if node not in names:
        objects.make(CSI_NODES, {"metadata": {"name": node}, "spec": {"drivers": own}})
        return
    patch = {"spec": {"drivers": own}}
    objects.plane.request("PATCH", f"{CSI_NODES}/{node}", patch, content_type=MERGE)


def release(objects: Objects, volume: str) -> None:
    """Let the object go without its agent."""
    free = {"metadata": {"finalizers": None}}
    objects.plane.request("PATCH", f"{VOLUMES}/{volume}", free, content_type=MERGE)


@pytest.fixture
def volume(objects: Objects, unique: str) -> Iterator[str]:
    """A bound volume on a node whose CSINode names another driver."""
    objects.node(unique)
    objects.make(CLASSES, {"metadata": {"name": unique}, "provisioner": CSI_DRIVER})
    name = made(objects, f"{unique}-pv", unique, unique)
    claimed(objects, unique, unique, name)
    register(objects, unique, OTHER)
    yield name
    with contextlib.suppress(RequestFailed):
        release(objects, name)


def test_why_no_pod_can_use_it(
    objects: Objects, seeing: Seeing, unique: str, volume: str, driver: str
) -> None:
    for about in (f"pv/{volume}", f"pvc/{unique}"):
        found = seeing.why(about)
        assert found["code"] == "not-registered", found
        assert f"the CSINode {unique} does not name {CSI_DRIVER}" in found["reason"]
    problems = seeing.ask("status", "--node", unique, "-o", "json").json["problems"]
    assert [one["about"] for one in problems] == [f"csinode/{unique}"]

    register(objects, unique, OTHER, CSI_DRIVER)
    for about in (f"pv/{volume}", f"pvc/{unique}"):
        assert seeing.why(about)["code"] == "bound"
    status = seeing.ask("status", "--node", unique, "-o", "json").json
    assert status["problems"] == []
    assert [(one["name"], one["csi"]) for one in status["volumes"]] == [(volume, True)]

    objects.plane.request("DELETE", driver)
    for about in (f"pv/{volume}", f"pvc/{unique}"):
        assert seeing.why(about)["code"] == "no-driver"


def test_the_bundle_has_its_driver_and_its_node(
    objects: Objects, seeing: Seeing, unique: str, volume: str, driver: str, tmp_path: Path
) -> None:
    register(objects, unique, OTHER, CSI_DRIVER)
    path = tmp_path / "bundle.tar.gz"
    assert seeing.ask("support-bundle", "--output", str(path)).status == 0
    with tarfile.open(path) as tar:
        files = {one.name.partition("/")[2]: tar.extractfile(one) for one in tar.getmembers()}
        found = {
            plural: json.load(file)
            for plural in ("csidrivers", "csinodes", "persistentvolumes")
            if (file := files[f"objects/{plural}.json"])
        }
    assert CSI_DRIVER in {one["metadata"]["name"] for one in found["csidrivers"]}
    (own,) = [one for one in found["csinodes"] if one["metadata"]["name"] == unique]
    assert [one["name"] for one in own["spec"]["drivers"]] == [CSI_DRIVER]
    (kept,) = [one for one in found["persistentvolumes"] if one["metadata"]["name"] == volume]
    assert kept["spec"]["csi"]["volumeHandle"] == volume


@pytest.mark.needs("snapshots")
def test_the_bundle_has_its_attributes_classes_and_misses_no_kind_that_is_not_there(
    objects: Objects, seeing: Seeing, unique: str, volume: str, tmp_path: Path
) -> None:
    forget_kinds(objects.plane)
    limits = {"readOps": "100"}
    for name, driver, told in ((unique, CSI_DRIVER, limits), (f"{unique}-o", OTHER, {"a": "b"})):
        body = {"metadata": {"name": name}, "driverName": driver, "parameters": told}
        objects.make(ATTRIBUTES_CLASSES, body)
    path = tmp_path / "bundle.tar.gz"
    said = seeing.ask("support-bundle", "--output", str(path))
    assert said.status == 0, said.err
    assert "snapshot" not in said.err
    with tarfile.open(path) as tar:
        files = {one.name.partition("/objects/")[2]: tar.extractfile(one) for one in tar}
        assert not [name for name in files if "snapshot" in name]
        file = files["volumeattributesclasses.json"]
        assert file is not None
        found = {one["metadata"]["name"]: one for one in json.load(file)}
    assert found[unique]["parameters"] == limits
    assert f"{unique}-o" not in found


def test_its_attributes_are_seen(
    objects: Objects, seeing: Seeing, unique: str, volume: str
) -> None:
    (before,) = seeing.ask("status", "--node", unique, "-o", "json").json["volumes"]
    assert (before["attributesClass"], before["attributes"]) == ("", {})
    limits = {"readOps": "100", "writeBytesPerSecond": "10Mi"}
    body = {"metadata": {"name": unique}, "driverName": CSI_DRIVER, "parameters": limits}
    objects.make(ATTRIBUTES_CLASSES, body)
    told = {"spec": {"volumeAttributesClassName": unique}}
    objects.plane.request("PATCH", f"{VOLUMES}/{volume}", told, content_type=MERGE)

    (shown,) = seeing.ask("status", "--node", unique, "-o", "json").json["volumes"]
    assert (shown["attributesClass"], shown["attributes"]) == (unique, limits)
    facts = {one["name"]: one["value"] for one in seeing.why(f"pv/{volume}")["facts"]}
    assert facts["Attributes by"] == f"{unique}: readOps=100, writeBytesPerSecond=10Mi"


def test_a_cluster_without_the_kinds_of_snapshots_is_no_problem(
    objects: Objects, seeing: Seeing, unique: str
) -> None:
    objects.make(CLASSES, {"metadata": {"name": unique}, "provisioner": CSI_DRIVER})
    status = seeing.ask("status", "-o", "json").json
    assert status["snapshots"] == []
    assert "volumesnapshotcontents" not in status["unknown"]
    assert "Snapshots" not in seeing.ask("status").out


def test_undo_and_going_back(objects: Objects, seeing: Seeing, unique: str, volume: str) -> None:
    objects.plane.request("DELETE", f"{CLAIMS}/{unique}")
    in_phase(objects, f"{VOLUMES}/{volume}", "Released")
    said = seeing.ask("undo", volume)
    assert said.status == 0, said.err
    assert f"waits for default/{unique}" in said.out
    assert "uid" not in objects.get(f"{VOLUMES}/{volume}")["spec"]["claimRef"]

    words = ("remove-finalizers", "--node", unique)
    assert "would remove" in seeing.ask(*words, "--dry-run").out
    said = seeing.ask(*words)
    assert said.status == 0, said.err
    assert "agents with --csi" in said.out
    assert FINALIZER not in objects.get(f"{VOLUMES}/{volume}")["metadata"].get("finalizers", [])


@pytest.mark.needs("root", "loop", "ext4")
def test_its_record_is_no_orphan_whatever_its_object_is_called(
    dynamic: DynamicLab, seeing: Seeing
) -> None:
    """external-provisioner names the object; only the handle is the record's name."""
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls)
    local = dynamic.made(claim)
    dynamic.until(
        lambda: dynamic.read_claim(claim), lambda one: one and one["spec"].get("volumeName")
    )
    handle, path = local["metadata"]["name"], dynamic.path_of(local)
    dynamic.stop()
    # In this order: to what is being deleted no finalizer is added again.
    dynamic.plane.request("DELETE", f"{VOLUMES}/{handle}")
    release(dynamic.objects, handle)
    dynamic.until(lambda: dynamic.volume(handle), lambda one: one is None)
    place = ("--config", str(dynamic.config_directory), "--node", dynamic.node)

    def asked() -> int:
        return main(["orphans", *place, "--kubeconfig", str(dynamic.plane.kubeconfig)])

    assert asked() == 1
    name = f"{dynamic.unique}-other"
    made(dynamic.objects, name, dynamic.node, cls, handle)
    assert asked() == 0
    found = seeing.why(str(path / "some" / "file"), *place)
    assert f"it is {name} of the pool" in found["reason"]
    release(dynamic.objects, name)
