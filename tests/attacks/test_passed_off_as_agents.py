"""A tenant gives its own pods the label of ours: they must not hide that an agent does not run."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localvolume.cli.seeing.status.overview import overview
from localvolume.kube.workloads import Pod
from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_objects import Objects
from tests.cluster.support_seeing import Seeing, agent_pod
from tests.decisions.support_seeing import agent, facts


def passed_off(namespace: str, *, ready: bool = True) -> Pod:
    """Of a DaemonSet of its own, with our label, on the same node."""
    pod = agent(ready=ready)
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, namespace=namespace)
    )


def seen(*pods: Pod) -> dict[str, Any]:
    return overview(facts(*pods))


@pytest.mark.parametrize("namespace", ["a-tenants", "tenants"])
def test_a_tenants_pod_does_not_make_an_agent_ready(namespace: str) -> None:
    """Whichever of them comes first."""
    for pods in (
        (agent(ready=False), passed_off(namespace)),
        (passed_off(namespace), agent(ready=False)),
    ):
        found = seen(*pods)
        assert found["summary"]["agents"]["not ready"] == 1
        assert any("its agent is not ready" in one["reason"] for one in found["problems"])


def test_that_there_are_such_pods_is_said() -> None:
    found = seen(agent(), passed_off("tenants"))
    assert found["summary"]["agents"]["ready"] == 1
    (said,) = [one for one in found["problems"] if one["about"] == "agents"]
    assert "lvp, tenants" in said["reason"]
    assert not seen(agent())["problems"]


def test_a_pod_that_takes_over_in_the_same_namespace_counts() -> None:
    """While a new version is rolled out two of ours are there."""
    found = seen(agent(ready=False), passed_off("lvp"))
    assert found["summary"]["agents"]["ready"] == 1


@pytest.mark.needs("controlplane")
@pytest.mark.parametrize("ours", [True, False], ids=["beside ours", "instead of ours"])
def test_who_says_where_it_is_installed_sees_no_pod_of_another_namespace(
    objects: Objects,
    unique: str,
    control_plane: ControlPlane,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    ours: bool,
) -> None:
    node, seeing = f"{unique}-node", Seeing(control_plane, capsys)
    objects.node(node)
    theirs = agent_pod(objects, node)
    own = {agent_pod(objects, node, namespace="kube-system", ready=False)} if ours else set()
    there = ("--release-namespace", "kube-system")
    (found,) = seeing.ask("status", "--node", node, "-o", "json", *there).json["nodes"]
    assert found["agent"]["state"] == ("not ready" if ours else "unknown")
    assert ours or "in the namespace kube-system" in found["agent"]["reason"]
    file = tmp_path / "bundle.tar.gz"
    assert seeing.ask("support-bundle", "-o", str(file), "--node", node, *there).status == 0
    with tarfile.open(file) as tar:
        read = {one.name.partition("/")[2]: tar.extractfile(one) for one in tar.getmembers()}
        pods = read["objects/pods.json"]
        assert pods is not None
        names = {one["metadata"]["name"] for one in json.load(pods)}
    assert own <= names
    assert theirs not in names
    assert not any(name.startswith("logs/default/") for name in read)
