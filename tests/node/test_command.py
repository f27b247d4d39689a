"""`python -m localvolume_lab.controlplane up --node`: a real node by the command alone."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from localvolume_lab.controlplane.assets import build_directory
from tests.node.support_pods import BUSYBOX
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet")


def command(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "localvolume_lab.controlplane", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_pod_runs_on_a_node_that_the_command_started(
    archives: list[Path], tmp_path: Path, unique: str
) -> None:
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path),
        "KUBEBUILDER_ASSETS": os.environ.get("KUBEBUILDER_ASSETS") or str(build_directory()),
    }

    def kubectl(*words: str) -> str:
        done = command(environment, "kubectl", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    wrong = command(environment, "up", "--image", str(archives[0]))
    assert (wrong.returncode, "say --node" in wrong.stderr) == (2, True)
    try:
        up = command(environment, "up", "--detach", "--node", unique, f"--image={archives[0]}")
        assert up.returncode == 0, up.stderr
        entering, _, _ = next(line for line in up.stdout.splitlines() if unique in line).partition(
            "   is a shell in the node"
        )
        kubectl(
            "run", "pod", f"--image={BUSYBOX}", "--image-pull-policy=Never", "--", "sleep", "99"
        )
        phase = ("get", "pod", "pod", "--output=jsonpath={.status.phase} {.spec.nodeName}")
        until(lambda: kubectl(*phase), lambda said: said == f"Running {unique}")
        # What the API server proves itself with to the kubelet is given to both.
        assert kubectl("exec", "pod", "--", "echo", "inside") == "inside"
        argv = [*shlex.split(entering), "-c", "findmnt --noheadings --output SOURCE /run"]
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        assert said.strip() == "localvolume-node"
        holder = argv[argv.index("sh") - 1]
        assert Path("/proc", holder).exists()
    finally:
        down = command(environment, "down")
    assert (down.returncode, down.stdout) == (0, "ended\n")
    assert not Path("/proc", holder).exists()
