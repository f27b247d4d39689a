"""The kinds of snapshots and the snapshot-controller, for clusters that have neither."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import CHART, NAME, Refused, one, pod_of, render
from tests.chart.support_kinds import kinds_served
from tests.chart.support_manifests import Object
from tests.chart.test_server import run
from tests.suite import csitools

pytestmark = pytest.mark.needs("go")

NAMED = f"{NAME}-snapshot-controller"
VALUES: dict[str, Any] = {
    "csi": {"enabled": True, "snapshotController": {"enabled": True}},
    "controller": {"enabled": False},
}
KEPT = {"helm.sh/resource-policy": "keep"}


def kinds(objects: list[Object]) -> dict[str, Object]:
    """The definitions of kinds, by their names."""
    return {
        each["metadata"]["name"]: each
        for each in objects
        if each["kind"] == "CustomResourceDefinition"
    }


def test_none_is_brought_unless_that_is_said() -> None:
    objects = render({"csi": {"enabled": True}})
    assert not kinds(objects)
    assert NAMED not in {each["metadata"]["name"] for each in objects}


@pytest.mark.needs("csi-sidecars")
def test_the_kinds_are_upstreams() -> None:
    """Those of the release that all of our tests are run with, and that the image is of."""
    found = kinds(render(VALUES))
    files = csitools.kept_by("snapshot-controller").glob("*.storage.k8s.io_*.yaml")
    theirs = kinds([yaml.safe_load(file.read_text("utf-8")) for file in files])
    assert len(theirs) == 6
    assert {name: each["spec"] for name, each in found.items()} == {
        name: each["spec"] for name, each in theirs.items()
    }
    for name, each in found.items():
        annotations = theirs[name]["metadata"]["annotations"]
        assert each["metadata"]["annotations"] == {**annotations, **KEPT}
    version = csitools.TOOLS["snapshot-controller"].version
    (container,) = pod_of(render(VALUES), "Deployment")["containers"]
    assert container["image"] == f"registry.k8s.io/sig-storage/snapshot-controller:{version}"


def test_its_pods_may_do_nothing_on_their_node_and_are_no_agents() -> None:
    objects = render(VALUES)
    pod = pod_of(objects, "Deployment")
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert "volumes" not in pod
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    deployment = one(objects, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    agents = one(objects, "DaemonSet")["spec"]["selector"]["matchLabels"]
    assert not agents.items() <= labels.items()


def test_image_and_number_can_be_chosen() -> None:
    own = {"enabled": True, "image": "registry.example/theirs:v9", "replicas": 1}
    objects = render({"csi": {"enabled": True, "snapshotController": own}})
    deployment = one(objects, "Deployment", NAMED)["spec"]
    assert deployment["replicas"] == 1
    (container,) = deployment["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/theirs:v9"


@pytest.mark.needs("controlplane")
def test_installed_with_the_release_and_kept_when_it_goes(
    empty_plane: ControlPlane, tmp_path: Path
) -> None:
    plane, file = empty_plane, tmp_path / "values.json"
    file.write_text(json.dumps(VALUES))
    ours = (NAME, CHART, "-n", NAME, "--values", file)
    run(plane, "install", *ours, "--create-namespace")
    names = sorted(kinds(render(VALUES)))
    there = [f"crd/{name}" for name in names]
    kinds_served(plane, names)
    assert plane.kubectl("-n", NAME, "get", "deployment", NAMED, "-o", "name")
    # Once the kinds are there, so are classes.
    classes = [{"name": "local-snapshots"}]
    csi = {**VALUES["csi"], "snapshotClasses": classes}
    file.write_text(json.dumps({**VALUES, "csi": csi}))
    run(plane, "upgrade", *ours)
    assert plane.kubectl("get", "volumesnapshotclass", "local-snapshots", "-o", "name")
    run(plane, "uninstall", NAME, "-n", NAME)
    assert not plane.kubectl("get", "volumesnapshotclasses", "-o", "name")
    assert not plane.kubectl("-n", NAME, "get", "deployments", "-o", "name")
    left = plane.kubectl("get", *there, "-o", "name").split()
    assert [each.rpartition("/")[2] for each in left] == names
    # The same release takes them again, and no other does.
    with pytest.raises(Refused, match="cannot be imported into the current release"):
        run(plane, "install", "other", *ours[1:])
    run(plane, "install", *ours)
