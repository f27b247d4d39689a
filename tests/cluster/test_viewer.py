"""Whoever has the chart's viewer role alone sees everything in `status` and `why`, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localvolume.volumes.marks import CSI_DRIVER
from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_manifests import NAME, rules_of
from tests.cluster.support_accounts import (
    ACCOUNTS,
    RBAC,
    Caller,
    kubeconfig,
    roles_in_force,
    token,
)
from tests.cluster.support_objects import Objects
from tests.cluster.support_seeing import Seeing, agent_pod
from tests.cluster.support_snapshots import kinds_of_snapshots
from tests.suite.api import CLAIMS, CLASSES, MERGE, PODS, VOLUMES
from tests.suite.names import HOSTNAME, NODE_LABEL, PROVISIONED_BY
from tests.suite.until import until

pytestmark = pytest.mark.needs("controlplane")

CONTENTS = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"
ATTRIBUTES = "/apis/storage.k8s.io/v1/volumeattributesclasses"
LEASES = "/apis/coordination.k8s.io/v1/leases"
SECRETS = "/api/v1/namespaces/default/secrets"


class Viewer(Seeing):
    """The commands, typed by an account that has the role and nothing else."""

    def __init__(
        self, objects: Objects, name: str, directory: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        super().__init__(objects.plane, capsys)
        self.administrator = Seeing(objects.plane, capsys)
        objects.make(ACCOUNTS, {"metadata": {"name": name}})
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": rules_of("ClusterRole", f"{NAME}-viewer"),
        }
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": name,
            },
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        objects.make(f"{RBAC}/clusterroles", role)
        objects.make(f"{RBAC}/clusterrolebindings", binding)
        roles_in_force(objects.plane, [role, binding])
        bearer = token(objects.plane, name)
        self.kubeconfig = str(kubeconfig(objects.plane, bearer, directory))
        self.caller = Caller(objects.plane, bearer)


@pytest.fixture
def snapshots(control_plane: ControlPlane) -> Iterator[None]:
    with kinds_of_snapshots(control_plane):
        yield


@pytest.fixture
def viewer(
    snapshots: None,
    objects: Objects,
    unique: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Viewer:
    """With a volume of the CSI driver to see, its claim, a pod and a snapshot of it."""
    objects.node(unique)
    agent_pod(objects, unique)
    objects.make(CLASSES, {"metadata": {"name": unique}, "provisioner": CSI_DRIVER})
    limits = {"driverName": CSI_DRIVER, "parameters": {"readIops": "100"}}
    objects.make(ATTRIBUTES, {"metadata": {"name": unique}, **limits})
    term = {"key": HOSTNAME, "operator": "In", "values": [unique]}
    volume = {
        "metadata": {
            "name": unique,
            "labels": {NODE_LABEL: unique},
            "annotations": {PROVISIONED_BY: CSI_DRIVER},
        },
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": unique,
            "volumeAttributesClassName": unique,
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": CSI_DRIVER, "volumeHandle": unique},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }
    objects.make(VOLUMES, volume)
    claim = {
        "storageClassName": unique,
        "volumeName": unique,
        "volumeAttributesClassName": unique,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    objects.make(CLAIMS, {"metadata": {"name": unique}, "spec": claim})
    until(
        lambda: objects.get(f"{CLAIMS}/{unique}")["status"].get("phase"), lambda is_: is_ == "Bound"
    )
    used = {"name": "data", "persistentVolumeClaim": {"claimName": unique}}
    container = {"name": "c", "image": "none:0"}
    pod = {"nodeName": unique, "containers": [container], "volumes": [used]}
    objects.make(PODS, {"metadata": {"name": unique}, "spec": pod})
    content = {
        "driver": CSI_DRIVER,
        "deletionPolicy": "Retain",
        "source": {"volumeHandle": unique},
        "volumeSnapshotRef": {"namespace": "default", "name": unique},
    }
    kind = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent"}
    objects.make(CONTENTS, {**kind, "metadata": {"name": unique}, "spec": content})
    objects.make(SECRETS, {"metadata": {"name": unique}, "stringData": {"key": "secret"}})
    return Viewer(objects, unique, tmp_path, capsys)


def test_the_viewer_sees_what_an_administrator_sees(viewer: Viewer, unique: str) -> None:
    status = viewer.ask("status", "-o", "json").json
    assert status["unknown"] == {}
    attributes = [one["attributes"] for one in status["volumes"] if one["name"] == unique]
    assert attributes == [{"readIops": "100"}]
    assert [one["name"] for one in status["snapshots"]] == [unique]
    for kind in ("pv", "pvc", "pod", "snapshot"):
        words = ("why", f"{kind}/{unique}", "-n", "default")
        said = viewer.ask(*words)
        assert (kind, said.status, said.err) == (kind, 0, "")
        assert "unknown" not in said.out, said.out
        # Kubernetes' own controllers may say something of them between the two.
        until(partial(_both_say, viewer, *words[1:]), lambda both: both[0] == both[1])


def _both_say(viewer: Viewer, *about: str) -> tuple[Any, Any]:
    return viewer.why(*about), viewer.administrator.why(*about)


def test_no_right_of_the_viewer_is_left_over(viewer: Viewer, objects: Objects, unique: str) -> None:
    """Without any one of them something is not seen, and that is said."""
    rules = rules_of("ClusterRole", f"{NAME}-viewer")
    for resource in (one for rule in rules for one in rule["resources"]):
        without = [{**rule, "resources": _all_but(resource, rule["resources"])} for rule in rules]
        path = f"{RBAC}/clusterroles/{unique}"
        objects.plane.request("PATCH", path, {"rules": without}, content_type=MERGE)
        until(partial(_unknown_is, viewer, resource), bool)


def _unknown_is(viewer: Viewer, resource: str) -> bool:
    return list(viewer.ask("status", "-o", "json").json["unknown"]) == [resource]


def _all_but(resource: str, resources: list[str]) -> list[str]:
    return [one for one in resources if one != resource] or ["none"]


def test_the_viewer_writes_nothing_and_reads_no_secret(
    viewer: Viewer, objects: Objects, unique: str
) -> None:
    asked: list[tuple[str, str, Any]] = [
        ("GET", f"{SECRETS}/{unique}", None),
        ("GET", SECRETS, None),
        ("GET", f"{PODS}/{unique}/log", None),
        ("GET", LEASES, None),
    ]
    for path in (f"{VOLUMES}/{unique}", f"{CLAIMS}/{unique}", f"{PODS}/{unique}"):
        asked += [("DELETE", path, None), ("PATCH", path, {"metadata": {"labels": {"a": "b"}}})]
    for path in (PODS, VOLUMES, CLAIMS, CONTENTS):
        asked.append(("POST", path, {"metadata": {"name": "new"}}))
    for method, path, body in asked:
        assert "is forbidden" in viewer.caller.refusal(method, path, body), (method, path)
    assert objects.get(f"{VOLUMES}/{unique}")["metadata"].get("deletionTimestamp") is None
