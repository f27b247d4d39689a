"""Snapshots in the commands for people, on a real control plane with the snapshot-controller."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from localvolume.cli.main import main
from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_accounts import ACCOUNTS, RBAC, kubeconfig, rule, token
from tests.cluster.support_groups import (
    GROUP_BEING_CREATED,
    GROUP_CLASSES,
    GROUP_CONTENTS,
    GroupLab,
)
from tests.cluster.support_objects import Objects
from tests.cluster.support_seeing import Seeing
from tests.cluster.support_snapshots import (
    SnapshotLab,
    handle_of,
)
from tests.suite.api import CLASSES
from tests.suite.names import CSI
from tests.suite.until import until

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "btrfs", "controlplane", "snapshots"),
    pytest.mark.usefixtures("controller"),
]


@pytest.fixture
def seeing(control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> Seeing:
    return Seeing(control_plane, capsys)


def test_a_snapshot_is_seen_from_its_object_down_to_its_pool(
    lab: SnapshotLab, seeing: Seeing, tmp_path: Path
) -> None:
    pool = lab.copying_pool()
    lab.serve()
    claim = lab.claimed()
    snapshot = lab.ready(lab.snapshot(claim, lab.snapshot_class("Retain")))
    content = lab.content_of(snapshot)
    assert content is not None
    name, handle = content["metadata"]["name"], handle_of(content)
    theirs = lab.make_content(
        f"{lab.unique}-theirs",
        driver="ebs.csi.aws.com",
        source={"snapshotHandle": "x"},
        volumeSnapshotRef={"name": "x", "namespace": "default"},
    )

    for about in (f"snapshot/{snapshot['metadata']['name']}", f"vsc/{name}", name, handle):
        found = seeing.why(about, "-n", "default")
        assert (found["about"], found["code"]) == (f"snapshotcontent/{name}", "ready"), about
    (shown,) = seeing.ask("status", "--node", lab.node, "-o", "json").json["snapshots"]
    assert (shown["name"], shown["handle"], shown["state"]) == (name, handle, "ready")
    assert shown["restoreSizeBytes"] == 8 << 20
    said = seeing.ask("why", f"vsc/{theirs['metadata']['name']}")
    assert said.status == 1
    assert f"no VolumeSnapshotContent of {CSI} is called" in said.err

    path = tmp_path / "bundle.tar.gz"
    assert seeing.ask("support-bundle", "--output", str(path)).status == 0
    with tarfile.open(path) as tar:
        (member,) = [
            one for one in tar.getmembers() if one.name.endswith("/volumesnapshotcontents.json")
        ]
        file = tar.extractfile(member)
        assert file is not None
        kept = {one["metadata"]["name"] for one in json.load(file)}
    assert name in kept
    assert theirs["metadata"]["name"] not in kept

    # On its node, by its path; and it is no orphan.
    place = ("--config", str(lab.config_directory), "--node", lab.node)
    inside = str(pool.directory / handle / "file")
    found = seeing.why(inside, *place)
    assert found["code"] == "ready"
    assert f"it is the snapshot {handle} in the pool" in found["reason"]
    facts = {one["name"]: one["value"] for one in found["facts"]}
    assert facts["Snapshot"].startswith(f"{handle} of volume ")
    assert facts["Restores to"] == "8Mi"
    orphans = ["orphans", *place, "--kubeconfig", str(lab.plane.kubeconfig)]
    assert main(orphans) == 0

    lab.delete_snapshot(snapshot)
    lab.delete_content(content)
    found = seeing.why(inside, *place)
    assert found["code"] == "snapshot"
    assert "no VolumeSnapshotContent stands for it" in found["reason"]
    assert main(orphans) == 0


@pytest.mark.needs("xfs")
def test_a_group_is_seen(lab: GroupLab, seeing: Seeing, tmp_path: Path) -> None:
    lab.image_pool()
    lab.serve()
    handles = sorted(lab.handle(one) for one in lab.together(2))
    group = lab.group_ready(lab.group())
    content = lab.group_tidy(group)
    name = content["metadata"]["name"]
    handle = content["status"]["volumeGroupSnapshotHandle"]
    for about in (f"vgs/{group['metadata']['name']}", f"vgsc/{name}", name, handle):
        found = seeing.why(about, "-n", "default")
        assert (found["about"], found["code"]) == (f"groupsnapshotcontent/{name}", "ready")
    status = seeing.ask("status", "--node", lab.node, "-o", "json").json
    (shown,) = status["groupSnapshots"]
    assert (shown["name"], shown["handle"], shown["state"]) == (name, handle, "ready")
    assert sorted(shown["volumeHandles"]) == handles
    assert len(shown["snapshotHandles"]) == 2
    said = seeing.ask("why", "vgs/none-such")
    assert said.status == 1
    assert f"no VolumeGroupSnapshotContent of {CSI} is called none-such" in said.err


def test_the_bundle_has_groups_of_snapshots_of_ours_alone(
    objects: Objects, seeing: Seeing, unique: str, tmp_path: Path
) -> None:
    objects.make(CLASSES, {"metadata": {"name": unique}, "provisioner": CSI})
    version = GROUP_CONTENTS.removeprefix("/apis/").rpartition("/")[0]
    ours, theirs = f"{unique}-ours", f"{unique}-theirs"
    secret = f"kept{unique}"
    for name, driver in ((ours, CSI), (theirs, "other.example.com")):
        cls = {
            "apiVersion": version,
            "kind": "VolumeGroupSnapshotClass",
            "metadata": {"name": name},
            "driver": driver,
            "deletionPolicy": "Retain",
        }
        objects.make(GROUP_CLASSES, cls)
        content = {
            "apiVersion": version,
            "kind": "VolumeGroupSnapshotContent",
            "metadata": {
                "name": name,
                "annotations": {GROUP_BEING_CREATED: "yes", "example.com/of": secret},
            },
            "spec": {
                "driver": driver,
                "deletionPolicy": "Retain",
                "volumeGroupSnapshotRef": {"name": name, "namespace": "default"},
                "source": {
                    "groupSnapshotHandles": {
                        "volumeGroupSnapshotHandle": name,
                        "volumeSnapshotHandles": [f"{name}-1"],
                    }
                },
            },
        }
        objects.make(GROUP_CONTENTS, content)
    path = tmp_path / "bundle.tar.gz"
    said = seeing.ask("support-bundle", "--output", str(path))
    assert said.status == 0, said.err
    with tarfile.open(path) as tar:
        for kind in ("volumegroupsnapshotcontents", "volumegroupsnapshotclasses"):
            (member,) = [one for one in tar if one.name.endswith(f"/objects/{kind}.json")]
            file = tar.extractfile(member)
            assert file is not None
            text = file.read().decode()
            found = {one["metadata"]["name"]: one for one in json.loads(text)}
            assert ours in found
            assert theirs not in found
            assert secret not in text
            if kind == "volumegroupsnapshotcontents":
                assert found[ours]["metadata"]["annotations"][GROUP_BEING_CREATED] == "yes"


def test_who_may_not_list_contents_is_told_so(
    objects: Objects, seeing: Seeing, unique: str, tmp_path: Path
) -> None:
    objects.make(CLASSES, {"metadata": {"name": unique}, "provisioner": CSI})
    objects.make(ACCOUNTS, {"metadata": {"name": unique}})
    rules = [rule("storageclasses", "list", group="storage.k8s.io")]
    objects.make(f"{RBAC}/clusterroles", {"metadata": {"name": unique}, "rules": rules})
    binding = {
        "metadata": {"name": unique},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": unique},
        "subjects": [{"kind": "ServiceAccount", "name": unique, "namespace": "default"}],
    }
    objects.make(f"{RBAC}/clusterrolebindings", binding)
    plane = objects.plane
    seeing.kubeconfig = str(kubeconfig(plane, token(plane, unique), tmp_path))
    # The API server learns of its roles by a watch.
    said = until(lambda: seeing.ask("status", "-o", "json"), lambda answer: answer.status == 0)
    found = said.json
    assert found["snapshots"] is None
    assert "forbidden" in found["unknown"]["volumesnapshotcontents"]
    assert found["groupSnapshots"] is None
    assert "forbidden" in found["unknown"]["volumegroupsnapshotcontents"]
    said = seeing.ask("why", "snapshot/x")
    assert said.status == 3
    assert "volumesnapshotcontents" in said.err
