"""A tenant gives its own pods the label of ours: they must not hide that an agent does not run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from localvolume.cli.seeing.overview import overview
from localvolume.kube.workloads import Pod
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
        assert any("its agent is not ready" in one["text"] for one in found["problems"])


def test_that_there_are_such_pods_is_said() -> None:
    found = seen(agent(), passed_off("tenants"))
    assert found["summary"]["agents"]["ready"] == 1
    (said,) = [one for one in found["problems"] if one["about"] == "agents"]
    assert "lvp, tenants" in said["text"]
    assert not seen(agent())["problems"]


def test_a_pod_that_takes_over_in_the_same_namespace_counts() -> None:
    """While a new version is rolled out two of ours are there."""
    found = seen(agent(ready=False), passed_off("lvp"))
    assert found["summary"]["agents"]["ready"] == 1
