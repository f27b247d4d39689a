"""`make demo`: which cluster it is shown in, whatever the shell has exported."""

import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
#: The environment is there already: what would install it is not run.
MAKE = ("make", "--old-file", ".venv/.installed", "demo")


def make(*words: str, kubeconfig: str | None) -> subprocess.CompletedProcess[str]:
    # `make test` hands its own options to every make below it.
    not_ours = ("KUBECONFIG", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")
    environment = {name: text for name, text in os.environ.items() if name not in not_ours}
    if kubeconfig is not None:
        environment["KUBECONFIG"] = kubeconfig
    return subprocess.run(
        (*MAKE, *words), cwd=REPOSITORY, env=environment, capture_output=True, text=True
    )


@pytest.mark.needs("make")
def test_an_exported_kubeconfig_alone_does_not_turn_it_to_that_cluster() -> None:
    would = make("--just-print", kubeconfig="/home/me/production")
    assert would.returncode == 0, would.stderr
    assert "localvolume demo" in would.stdout
    assert "kubeconfig" not in would.stdout.lower()


@pytest.mark.needs("make")
def test_it_is_shown_in_that_cluster_when_told_so() -> None:
    would = make("--just-print", "CLUSTER=1", kubeconfig="/home/me/mine")
    assert would.stdout.splitlines()[-1].endswith('localvolume demo   --kubeconfig "$KUBECONFIG"')


@pytest.mark.needs("make")
def test_without_a_kubeconfig_no_cluster_is_guessed() -> None:
    done = make("CLUSTER=1", kubeconfig=None)
    assert done.returncode == 2
    assert "CLUSTER=1 shows it in the cluster of KUBECONFIG, which is not set" in done.stderr
    assert done.stdout == ""
