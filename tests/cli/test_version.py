"""`localvolume version`: of this command, and which images run in the cluster."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from localvolume.cli.main import main
from localvolume_lab.sandbox.sandbox import Sandbox

OURS = {"app.kubernetes.io/part-of": "local-volume-provisioner"}
CLIENT = metadata.version("local-volume-provisioner")


def post(url: str, body: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 201


def pod(name: str, container: str, image: str, labels: dict[str, str] = OURS) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": "n", "containers": [{"name": container, "image": image}]},
    }


def asked(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "localvolume", "version", *words),
        env={**os.environ, "KUBECONFIG": ""},
        capture_output=True,
        text=True,
    )


def test_which_images_run_in_the_cluster(tmp_path: Path) -> None:
    def ask(url: str, *words: str) -> None:
        done = asked(*words)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [
            f"client      {CLIENT}",
            "agents      none found",
            "controllers none found",
        ]
        pods = f"{url}/api/v1/namespaces/default/pods"
        for name, image in (("a-1", "lvp:2"), ("a-2", "lvp:1"), ("a-3", "lvp:1")):
            post(pods, pod(name, "provisioner", image))
        post(pods, pod("c-1", "controller", "lvp:\x1b[2J"))
        post(pods, pod("s-1", "snapshot-controller", "snapshots:8"))
        post(pods, pod("foreign", "provisioner", "theirs:9", {}))
        assert asked(*words).stdout.splitlines()[1:] == [
            "agents      2 of lvp:1",
            "agents      1 of lvp:2",
            "controllers 1 of lvp:\\x1b[2J",
        ]
        assert json.loads(asked(*words, "-o", "json").stdout) == {
            "client": {"version": CLIENT},
            "agents": [{"image": "lvp:1", "pods": 2}, {"image": "lvp:2", "pods": 1}],
            "controllers": [{"image": "lvp:\x1b[2J", "pods": 1}],
        }

    async def in_sandbox() -> None:
        async with Sandbox() as sandbox:
            kubeconfig = sandbox.kubeconfig(tmp_path / "kubeconfig")
            await asyncio.to_thread(ask, sandbox.url, "--kubeconfig", str(kubeconfig))

    asyncio.run(in_sandbox())


def test_what_cannot_be_asked_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "none"
    assert main(["version", "--kubeconfig", str(missing)]) == 3
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        f"client      {CLIENT}",
        "agents      unknown",
        "controllers unknown",
    ]
    assert str(missing) in said.err
    assert main(["version", "--kubeconfig", str(missing), "-o", "yaml"]) == 3
    assert "agents: null\n" in capsys.readouterr().out


def test_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--client"]) == 0
    assert capsys.readouterr() == (f"client      {CLIENT}\n", "")
