"""A cluster that serves a kind of snapshots in older versions alone: what the policies do not know,
they must refuse, and not pass over."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvolume_lab.controlplane import ControlPlane, RequestFailed
from tests.chart.support_helm import render
from tests.cluster.support_accounts import Caller
from tests.cluster.support_objects import Objects
from tests.cluster.support_rights import TEMPLATES, Rights, of_labs
from tests.cluster.support_snapshots import DEFINITIONS, forget_kinds, read
from tests.suite import csitools
from tests.suite.until import until

pytestmark = pytest.mark.needs("controlplane", "snapshots")

GROUP = "groupsnapshot.storage.k8s.io"
CONTENTS = "volumegroupsnapshotcontents"
OLDER = f"/apis/{GROUP}/v1beta2/{CONTENTS}"


@pytest.fixture
def older_kind(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """As clusters have it that came before its v1."""
    forget_kinds(control_plane)
    (file,) = csitools.kept_by("snapshot-controller").glob(f"{GROUP}_{CONTENTS}.yaml")
    definition: Any = yaml.safe_load(file.read_text())
    older = copy.deepcopy(definition)
    older["spec"]["versions"] = [
        one for one in definition["spec"]["versions"] if one["name"] == "v1beta2"
    ]
    control_plane.request("POST", DEFINITIONS, older)
    try:
        until(lambda: is_served(control_plane))
        assert read(control_plane, f"/apis/{GROUP}/v1/{CONTENTS}") is None
        yield control_plane
    finally:
        forget_kinds(control_plane)


def is_served(plane: ControlPlane) -> bool:
    try:
        return read(plane, OLDER) is not None
    except RequestFailed:
        return False  # while its storage is made


@pytest.fixture
def thief(older_kind: ControlPlane, objects: Objects, unique: str, tmp_path: Path) -> Iterator[Any]:
    """Whoever has the token of a node."""
    values = of_labs(tmp_path, {"csi": {"enabled": True}})
    manifests = render(values, release=unique, namespace="default", only=TEMPLATES)
    with Rights(older_kind, manifests) as rights:
        node = f"{unique}-a"
        objects.node(node)
        yield rights.caller(node)


def test_a_token_changes_nothing_of_a_version_that_no_policy_knows(
    older_kind: ControlPlane, thief: Caller, objects: Objects, unique: str
) -> None:
    """Of another driver's group it would be told which snapshots it has: those of any tenant."""
    ref = {"name": "theirs", "namespace": "kube-public", "uid": "1"}
    body = {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "VolumeGroupSnapshotContent",
        "metadata": {"name": f"{unique}-group"},
        "spec": {
            "driver": "other.example",
            "deletionPolicy": "Retain",
            "source": {"volumeHandles": ["volume-1"]},
            "volumeGroupSnapshotRef": ref,
        },
    }
    path = f"{OLDER}/{objects.make(OLDER, body)['metadata']['name']}"
    told = [{"volumeHandle": "volume-1", "snapshotHandle": "anybodys", "readyToUse": True}]
    lie = {"volumeGroupSnapshotHandle": "group-1", "volumeSnapshotInfoList": told}
    why = f"an agent changes {CONTENTS} only in version v1"
    assert why in thief.refusal("PATCH", f"{path}/status", {"status": lie}, really=True)
    assert why in thief.refusal("PATCH", path, {"spec": {"deletionPolicy": "Delete"}}, really=True)
    assert "status" not in older_kind.request("GET", path)
