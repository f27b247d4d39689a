"""The plain manifests are what the chart renders, and can be applied, twice, and removed again."""

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import CHART, NAME, ROOT, Refused, helm
from tests.chart.support_manifests import DEPLOY, installed, rendered
from tests.suite.until import until

pytestmark = pytest.mark.needs("go")


def test_they_are_current() -> None:
    stale = [
        path.name for path, text in rendered().items() if path.read_text(encoding="utf-8") != text
    ]
    assert not stale, "run `make manifests`, and commit what it writes"


def test_what_confines_comes_before_any_right() -> None:
    kinds = [one["kind"] for one in installed()]
    policies = [kind.startswith("ValidatingAdmissionPolicy") for kind in kinds]
    assert any(policies)
    assert policies == sorted(policies, reverse=True), kinds


def test_chart_is_clean(tmp_path: Path) -> None:
    told = helm("lint", "--strict", CHART)
    assert "[ERROR]" not in told
    assert "[WARNING]" not in told
    # What no lint finds: that it can be packed.
    helm("package", CHART, "--destination", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}-{_version()}.tgz"]


def test_lint_is_strict(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("controler: {}\n")
    with pytest.raises(Refused, match="controler"):
        helm("lint", "--strict", CHART, "--values", values)


def _version() -> str:
    return metadata.version("local-volume-provisioner")


def test_version_is_ours() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == _version()


def test_no_registry_is_named() -> None:
    """Which registry an image is in, who installs it says."""
    for path in rendered():
        for one in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if one and one["kind"] in ("DaemonSet", "Deployment"):
                (container,) = one["spec"]["template"]["spec"]["containers"]
                assert container["image"] == f"{NAME}:{_version()}"


@pytest.mark.needs("controlplane")
def test_applied_and_removed(empty_plane: ControlPlane) -> None:
    plane = empty_plane
    files = [f"--filename={path}" for path in rendered()]
    try:
        told = plane.kubectl("apply", *files).splitlines()
        assert {line.rsplit(" ", 1)[1] for line in told} == {"created"}
        before = _generations(plane, files)
        plane.kubectl("apply", *files)
        assert _generations(plane, files) == before
        labels = plane.request("GET", f"/api/v1/namespaces/{NAME}")["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    finally:
        plane.kubectl("delete", "--ignore-not-found", "--wait=false", *files)
        _wait_gone(plane)
    left = plane.kubectl(
        *("get", "storageclasses,clusterroles,clusterrolebindings,validatingadmissionpolicies"),
        *("-l", f"app.kubernetes.io/instance={NAME}", "-o", "name"),
    )
    assert not left


def _generations(plane: ControlPlane, files: list[str]) -> dict[str, Any]:
    """What the server counts up when what is wanted of an object changes."""
    columns = (
        "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation}{'\\n'}{end}"
    )
    lines = plane.kubectl("get", *files, "-o", columns).splitlines()
    return {name: count for name, _, count in (line.partition(" ") for line in lines)}


def _wait_gone(plane: ControlPlane) -> None:
    """Pods on nodes that exist only as objects are ended by no kubelet."""
    forced = ("--all", "--force", "--grace-period=0", "--wait=false")
    until(
        lambda: plane.kubectl("get", "namespace", NAME, "--ignore-not-found", "-o", "name"),
        lambda left: not left,
        check=lambda: plane.kubectl("-n", NAME, "delete", "pods", *forced),
        every=0.2,
    )


def test_values_of_the_manifests_are_beside_them() -> None:
    assert {path.name for path in DEPLOY.iterdir()} == {
        *(path.name for path in rendered()), "values.yaml", "monitoring-values.yaml"
    }  # fmt: skip
    assert DEPLOY.parent == ROOT
