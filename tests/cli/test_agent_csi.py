"""`localvolume agent --csi`: what it needs, and what an agent without it is spared."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from localvolume.cli.main import main
from localvolume.config.flags.agent import CGROUP_DIR, CSI, CSI_MAX_VOLUMES

LOOK = """
import json, sys
import localvolume.cli.agent, localvolume.agent.agent
import localvolume.dynamic.role, localvolume.dynamic.capacityrole, localvolume.health.role
print(json.dumps(sorted(sys.modules)))
"""
WITH_CSI = ("localvolume.csi", "grpclib", "google", "h2")


def test_an_agent_without_it_imports_none_of_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, timeout=60
    )
    seen = json.loads(done.stdout)
    assert "localvolume.dynamic.role" in seen
    assert [one for one in seen if f"{one}.".startswith(tuple(f"{m}." for m in WITH_CSI))] == []


def test_it_needs_the_kubelets_directory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_NODE_NAME", "node-1")
    monkeypatch.setenv("KUBELET_DIR", "none")
    assert main(["agent", CSI.name]) == 2
    assert capsys.readouterr().err == (
        "localvolume agent: --csi needs the kubelet's directory, "
        "and KUBELET_DIR says that there is none\n"
    )


@pytest.mark.parametrize(("flag", "value"), [(CGROUP_DIR.name, "/x"), (CSI_MAX_VOLUMES.name, "5")])
def test_what_is_for_it_alone(
    flag: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_NODE_NAME", "node-1")
    assert main(["agent", flag, value]) == 2
    assert capsys.readouterr().err == f"localvolume agent: {flag} is for --csi alone\n"


@pytest.mark.parametrize("value", ["0", "-1", "2147483648", "1.5", "many", ""])
def test_a_number_of_volumes_that_is_none(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["agent", CSI.name, f"{CSI_MAX_VOLUMES.name}={value}"])
    assert "is no number from 1 to 2147483647" in capsys.readouterr().err
