"""`localvolume demo` in clusters: held up for kubectl, the user's own, a real control plane."""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.sandbox.sandbox import Sandbox
from tests.cli.support_demo import DEMO, RESTING, running
from tests.suite.api import CLASSES, DRIVERS, NODES, VOLUMES
from tests.suite.until import until

KINDS = (
    NODES,
    "/api/v1/namespaces",
    VOLUMES,
    "/api/v1/persistentvolumeclaims",
    CLASSES,
    DRIVERS,
    "/apis/storage.k8s.io/v1/csistoragecapacities",
    "/apis/coordination.k8s.io/v1/leases",
)


def items(server: str, path: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{server}{path}", timeout=60) as answer:
        found: list[dict[str, Any]] = json.load(answer)["items"]
    return found


def until_bound(server: str, name: str) -> None:
    """Wait until a volume was made for the claim of that name."""
    until(
        lambda: items(server, "/api/v1/persistentvolumeclaims"),
        lambda found: (
            {"Bound"} == {c["status"]["phase"] for c in found if c["metadata"]["name"] == name}
        ),
    )


def server_of(kubeconfig: str) -> str:
    server: str = json.loads(Path(kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
    return server


@pytest.mark.needs("userns")
def test_held_up_it_can_be_looked_at_until_ctrl_c(tmp_path: Path) -> None:
    with running(tmp_path, "--hold") as run:
        run.until(r"Ctrl-C removes everything")
        kubeconfig = run.until(r"export KUBECONFIG=(\S+)")[1]
        volumes = items(server_of(kubeconfig), VOLUMES)
        phases = {
            volume["spec"]["storageClassName"]: volume["status"]["phase"] for volume in volumes
        }
        assert phases | {"raw": "Available"} == {
            "files": "Available",
            "raw": "Available",
            "kept": "Bound",
        }
        claim = run.until(r"kubectl\S* -n demo apply -f (\S+)")[1]
        body = Path(claim).read_bytes()
        request = urllib.request.Request(
            f"{server_of(kubeconfig)}/api/v1/namespaces/demo/persistentvolumeclaims",
            body,
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 201
        until_bound(server_of(kubeconfig), "mine")
        for asked, said in (("status", "demo-node"), ("why", "Bound")):
            line = run.until(rf"(?:\S+ -m |\S+/)localvolume {asked}[^\r\n]*")[0]
            environment = {**os.environ, "KUBECONFIG": kubeconfig}
            answer = subprocess.run(
                shlex.split(line), env=environment, capture_output=True, text=True
            )
            assert answer.returncode == 0, answer.stdout + answer.stderr
            assert said in answer.stdout
            assert "404" not in answer.stdout
        metrics = run.until(r"curl (http://\S+)")[1]
        with urllib.request.urlopen(metrics, timeout=60) as answer:
            assert b"local_volume_provisioner_" in answer.read()
        run.signal(signal.SIGINT)
        assert run.end() == 0, run.output
    assert "Everything is removed again." in run.output


def test_a_cluster_of_the_users_is_not_touched_without_asking(tmp_path: Path) -> None:
    async def unanswered() -> None:
        async with Sandbox() as sandbox:
            kubeconfig = sandbox.kubeconfig(tmp_path / "kubeconfig")
            where = tmp_path / "work"
            where.mkdir()

            def ask() -> None:
                before = {path: items(sandbox.url, path) for path in KINDS}
                with running(where, "--kubeconfig", str(kubeconfig)) as run:
                    assert run.end() == 2
                assert sandbox.url in run.output
                assert "say --yes" in run.output
                with running(where, "--kubeconfig", str(kubeconfig), columns=100) as run:
                    run.until(r"\[y/N\]")
                    run.type("\n")
                    assert run.end() == 2
                assert "Nothing was done" in run.output
                assert {path: items(sandbox.url, path) for path in KINDS} == before

            await asyncio.to_thread(ask)

    asyncio.run(unanswered())


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path) -> None:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
        "current-context": "c",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    where = tmp_path / "work"
    where.mkdir()
    with running(where, "--kubeconfig", str(tmp_path / "kubeconfig"), "--yes") as run:
        assert run.end() == 2
    assert "127.0.0.1:1" in run.output
    with running(where, "--kubeconfig", str(tmp_path / "nothing"), "--yes") as run:
        assert run.end() == 2
    assert "is not a file" in run.output


@pytest.mark.needs("userns")
@pytest.mark.parametrize("moment", ["", r"is bound to", r"claim scratch is Bound"])
def test_kill_9_leaves_nothing_in_the_users_cluster(tmp_path: Path, moment: str) -> None:
    """Killed at that moment; the empty one lets it end by itself."""

    def performance(sandbox: Sandbox, kubeconfig: Path) -> None:
        before = {path: items(sandbox.url, path) for path in KINDS}
        where = tmp_path / "work"
        where.mkdir()
        argv = (sys.executable, "-c", RESTING, moment) if moment else DEMO
        with running(where, "--kubeconfig", str(kubeconfig), "--yes", argv=argv) as run:
            if moment:
                run.until(moment)
                assert len(items(sandbox.url, NODES)) == 1
                run.signal(signal.SIGKILL)
                assert run.end() == -signal.SIGKILL
            else:
                assert run.end() == 0, run.output
        # The keeper has ended, or `running` would have complained.
        assert {path: items(sandbox.url, path) for path in KINDS} == before
        assert items(sandbox.url, "/api/v1/events") == []

    async def play() -> None:
        async with Sandbox() as sandbox:
            kubeconfig = sandbox.kubeconfig(tmp_path / "kubeconfig")
            await asyncio.to_thread(performance, sandbox, kubeconfig)

    asyncio.run(play())


@pytest.mark.needs("userns")
def test_a_real_cluster_shows_the_same_and_is_as_before(
    tmp_path: Path, control_plane: ControlPlane
) -> None:
    options = ("--kubeconfig", str(control_plane.kubeconfig), "--yes", "--hold")
    with running(tmp_path, *options) as run:
        run.until(r"Ctrl-C removes everything")
        run.signal(signal.SIGINT)
        assert run.end() == 0, run.output
    name = re.search(r"Node (localvolume-demo-\w+)", run.output)
    assert name is not None
    for path in (*KINDS, "/api/v1/events"):
        found = control_plane.request("GET", path)["items"]
        # Namespaces have Events of their own kind; none may speak of the demo.
        assert not [item for item in found if name[1] in json.dumps(item["metadata"])], path
    assert "by the cluster after" in run.output
    assert "no snapshots: they are shown in the sandbox" in run.output
    assert "is not started: the demo labels its claims" in run.output
    assert "What runs here are processes and no pods" in run.output
    assert "claim scratch is Bound" in run.output


@pytest.mark.needs("userns", "controlplane")
def test_a_real_control_plane_of_its_own_goes_with_it(tmp_path: Path) -> None:
    moment = r"claim notes .* by kube-controller-manager after"
    with running(tmp_path, "--real", argv=(sys.executable, "-c", RESTING, moment)) as run:
        run.until(moment)
        run.signal(signal.SIGTERM)
        assert run.end() == 128 + signal.SIGTERM
    assert re.search(r"Cluster  a real control plane, https://127\.0\.0\.1:\d+", run.output)
