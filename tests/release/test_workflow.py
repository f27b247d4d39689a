"""The workflow of a release: its shell is understood, and what it names is what a release has."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Any

import pytest
import yaml

from image.application import NAME, ROOT, version
from tests.release.support_release import example

PATH = ROOT / ".github/workflows/release.yml"
WORKFLOW: dict[str, Any] = yaml.safe_load(PATH.read_text())
STEPS = [
    pytest.param(step, id=f"{name}-{number}")
    for name, job in WORKFLOW["jobs"].items()
    for number, step in enumerate(job["steps"])
    if "run" in step
]


@pytest.mark.parametrize("step", STEPS)
def test_bash_understands_each_step(step: dict[str, Any]) -> None:
    said = subprocess.run(
        ["bash", "-n"], input=step["run"], capture_output=True, text=True, timeout=60
    )
    assert said.returncode == 0, said.stderr
    # What a tag or a branch is named would be typed into the shell.
    assert "${{" not in step["run"]


def test_nothing_that_builds_may_publish() -> None:
    """The right to sign and to push is given to jobs that run nothing of the tree."""
    assert WORKFLOW["permissions"] == {"contents": "read"}
    build = WORKFLOW["jobs"]["build"]
    assert "permissions" not in build
    assert "environment" not in build
    for name in ("publish", "pypi"):
        job = WORKFLOW["jobs"][name]
        assert job["environment"] == "release"
        assert "checkout" not in str(job["steps"])
    for name, job in WORKFLOW["jobs"].items():
        text = "\n".join(step.get("run", "") for step in job["steps"])
        programs = {os.path.basename(word) for word in re.findall(r"(?m)^\s*(\S+)", text)}
        runs = programs & {"make", "mike", "pip", "python", "python3"}
        assert name == "build" or not runs, f"{name} runs what the tree or its dependencies bring"


def test_actions_are_named_by_their_commits() -> None:
    """A tag can be moved to other code, which would then sign in our name."""
    lines = [line.strip() for line in PATH.read_text().splitlines() if "uses:" in line]
    assert len(lines) == sum(
        "uses" in step for job in WORKFLOW["jobs"].values() for step in job["steps"]
    )
    for line in lines:
        assert re.fullmatch(r"- uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_what_it_gives_to_make_is_asked_for_there() -> None:
    (run,) = (
        step["run"]
        for step in WORKFLOW["jobs"]["build"]["steps"]
        if step.get("run", "").startswith("make release")
    )
    given = set(re.findall(r"([A-Z]+)=", run))
    (recipe,) = re.findall(r"(?m)^release:.*\n\t(.*)$", (ROOT / "Makefile").read_text())
    assert given == set(re.findall(r"\$\(([A-Z]+)\)", recipe)) - {"BIN"}


def test_the_files_it_pushes_and_signs_are_named_as_a_release_names_them() -> None:
    order = example(version(ROOT))
    text = PATH.read_text()
    for rest in ("-image.oci.tar", "-chart.oci.tar", ".intoto.json"):
        assert order.named(rest) == f"{NAME}-{order.version}{rest}"
        assert f"$name-$version{rest}" in text
