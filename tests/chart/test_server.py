"""What the chart renders is what a real API server takes, field by field, and helm installs."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvolume.cli.main import main
from localvolume_lab.controlplane import ControlPlane, KubectlFailed
from tests.chart.support_helm import CHART, helm, render, render_text, understood
from tests.chart.support_sets import FULL, SETS

pytestmark = pytest.mark.needs("go")

STRICT = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")


@pytest.mark.parametrize("name", SETS)
def test_server_takes_it(monitored_plane: ControlPlane, namespace: str, name: str) -> None:
    text = render_text(SETS[name], release=namespace, namespace=namespace)
    told = monitored_plane.kubectl(*STRICT, input=text).splitlines()
    assert len(told) == len([one for one in yaml.safe_load_all(text) if one])


def test_server_looks_closely(monitored_plane: ControlPlane, namespace: str) -> None:
    """The test above can fail: a field that is none is refused."""
    text = render_text(release=namespace, namespace=namespace)
    assert "mountPropagation:" in text
    with pytest.raises(KubectlFailed, match="mountPropagations"):
        monitored_plane.kubectl(
            *STRICT, input=text.replace("mountPropagation:", "mountPropagations:")
        )


@pytest.mark.parametrize("name", SETS)
def test_agent_takes_the_configuration(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = render(SETS[name])
    maps = [
        one
        for one in objects
        if one["kind"] == "ConfigMap" and not one["metadata"]["name"].endswith("-dashboard")
    ]
    path = tmp_path / "configmaps.yaml"
    path.write_text(yaml.safe_dump_all(maps))
    assert main(["check-config", "--no-host-checks", str(path)]) == 0, capsys.readouterr()
    for one in objects:
        if one["kind"] in ("DaemonSet", "Deployment"):
            understood(one["spec"]["template"]["spec"]["containers"][0]["args"])


def run(plane: ControlPlane, *words: str | Path) -> str:
    """helm in this cluster; what it learns of the server's kinds is kept from call to call."""
    hurried = ("--qps", "200", "--burst-limit", "400")
    return helm("--kubeconfig", plane.kubeconfig, *hurried, *words, home=plane.directory)


def found(plane: ControlPlane, namespace: str, kind: str) -> dict[str, Any]:
    """By name: all of this kind that belong to the release `namespace`, in that namespace."""
    selector = f"app.kubernetes.io/instance={namespace}"
    told = plane.kubectl("-n", namespace, "get", kind, "-l", selector, "-o", "json")
    return {one["metadata"]["name"]: one for one in json.loads(told)["items"]}


KINDS = (
    *("daemonsets", "deployments", "configmaps", "serviceaccounts", "services", "clusterroles"),
    *("clusterrolebindings", "roles", "rolebindings", "storageclasses", "priorityclasses"),
    *("poddisruptionbudgets", "networkpolicies", "validatingadmissionpolicies"),
    *("validatingadmissionpolicybindings", "servicemonitors", "prometheusrules"),
)


def test_install_upgrade_uninstall(
    monitored_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    plane, file = monitored_plane, tmp_path / "values.json"
    file.write_text(json.dumps({**FULL, "namespace": {"create": False}}))
    told = run(plane, "install", namespace, CHART, "-n", namespace, "--values", file)
    assert "Disks are formatted once the digest" in told
    name = f"{namespace}-local-volume-provisioner"
    assert found(plane, namespace, "daemonsets").keys() == {name}
    assert all(found(plane, namespace, kind) for kind in KINDS)
    told = run(
        *(plane, "upgrade", namespace, CHART, "-n", namespace, "--set", "controller.enabled=false"),
        *("--set", "confinement.enabled=false"),
        *("--set-json", 'classes=[{"name": "by-hand", "hostDir": "/mnt/by-hand"}]'),
    )
    assert "The controller is not installed" in told
    assert "confinement.enabled is false" in told
    assert "Class by-hand needs a StorageClass of that name" in told
    assert not found(plane, namespace, "deployments")
    assert not found(plane, namespace, "validatingadmissionpolicies")
    run(plane, "uninstall", namespace, "-n", namespace)
    assert not [kind for kind in KINDS if found(plane, namespace, kind)]


def upstream(namespace: str, directory: Path) -> Path:
    """A chart of upstream's name whose DaemonSet has upstream's name, selector and pods."""
    name = f"{namespace}-local-static-provisioner"
    labels = {
        "app.kubernetes.io/name": "local-static-provisioner",
        "app.kubernetes.io/instance": namespace,
    }
    container = {"name": "provisioner", "image": "registry.example/upstream:v2.9.0"}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    daemonset = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "rules": [],
        "metadata": {"name": f"{name}-node-clusterrole", "labels": labels},
    }
    chart = {"apiVersion": "v2", "name": "local-static-provisioner", "version": "2.9.0"}
    (directory / "templates").mkdir(parents=True)
    (directory / "Chart.yaml").write_text(json.dumps(chart))
    for at, one in enumerate((daemonset, role)):
        (directory / "templates" / f"{at}.yaml").write_text(yaml.safe_dump(one))
    return directory


def test_release_of_upstream_becomes_ours_and_goes_back(
    monitored_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The DaemonSet stays the same object: its selector could not be changed."""
    plane, name = monitored_plane, f"{namespace}-local-static-provisioner"
    example = Path(__file__).parent / "examples" / "gce-retain.yaml"
    chart = upstream(namespace, tmp_path / "chart")
    run(plane, "install", namespace, chart, "-n", namespace, "--values", example)
    before = found(plane, namespace, "daemonsets")[name]
    run(
        *(plane, "upgrade", namespace, CHART, "-n", namespace, "--reset-then-reuse-values"),
        *("--set", "nameOverride=local-static-provisioner", "--set", "image=ours:1"),
    )
    ours = found(plane, namespace, "daemonsets")[name]
    assert ours["metadata"]["uid"] == before["metadata"]["uid"]
    (container,) = ours["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "agent"
    assert container["image"] == "ours:1"
    assert {"local-scsi", "local-nvme"} <= {mount["name"] for mount in container["volumeMounts"]}
    assert f"{name}-node-clusterrole" not in found(plane, namespace, "clusterroles")
    run(plane, "rollback", namespace, "1", "-n", namespace)
    back = found(plane, namespace, "daemonsets")
    assert back[name]["metadata"]["uid"] == before["metadata"]["uid"]
    assert "args" not in back[name]["spec"]["template"]["spec"]["containers"][0]
    assert f"{name}-node-clusterrole" in found(plane, namespace, "clusterroles")
    run(plane, "uninstall", namespace, "-n", namespace)
