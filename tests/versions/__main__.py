"""Runs the tests that talk to a control plane against other releases of Kubernetes.

    python -m tests.versions [v1.32] [-- ARGUMENTS OF PYTEST]

API server, controllers and scheduler are of that release; etcd, kubectl and kubelet stay those of
every run. Each release is compiled once, outside the tree, from the modules that its directory here
pins; `differs.txt` beside them names tests that the release answers otherwise, and why that is no
harm. The support matrix (docs/versions.md) says what was run.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from localvolume_lab.controlplane.assets import kubernetes_version
from localvolume_lab.controlplane.build import build
from tests import capabilities

HERE = Path(__file__).resolve().parent
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
#: What asks an API server, controllers or a scheduler; without what judges our own build of them.
SUITE = ("tests/contract", "tests/cluster", "tests/chart")
NOT_RUN_FILES = ("tests/cluster/test_controlplane_build.py",)
#: It has a cache of its own, and would compile what the release's directory lacks.
NOT_RUN_TESTS = (
    "tests/cluster/test_controlplane.py::test_the_command_holds_one_plane_until_it_is_told_to_end",
)
_WORKERS = 4


def releases() -> list[str]:
    """The directories with a release's modules, the oldest first."""
    found = (path.parent.name for path in HERE.glob("v*/go.mod"))
    return sorted(found, key=lambda name: int(name.partition(".")[2]))


def source_of(release: str, into: Path) -> Path:
    """What is compiled for the release, put together in that directory."""
    shutil.copy(HERE / "main.go", into)
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / release / name, into)
    return into


def differing(release: str) -> list[str]:
    """The tests that the release answers otherwise."""
    path = HERE / release / "differs.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line for line in lines if line and not line.startswith("#")]


def test(release: str, arguments: list[str]) -> int:
    """Build the release if that was not done yet, and run the suite; pytest's exit code."""
    with tempfile.TemporaryDirectory(prefix="lv-") as directory:
        source = source_of(release, Path(directory))
        version, built = kubernetes_version(source), build(source=source, components=COMPONENTS)
    print(f"== Kubernetes {version}", flush=True)
    options = ["-q", "-n", str(_WORKERS), "--dist", "loadfile", "-p", "no:cacheprovider"]
    left_out = [f"--ignore={path}" for path in NOT_RUN_FILES]
    left_out += [f"--deselect={test}" for test in (*NOT_RUN_TESTS, *differing(release))]
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "pytest"]
    # A test that is skipped fails: the support matrix says that it was run.
    environment = {**os.environ, "CI": "true", "KUBEBUILDER_ASSETS": str(built)}
    code = subprocess.call([*command, *options, *left_out, *(arguments or SUITE)], env=environment)
    print(f"== Kubernetes {version}: {'failed' if code else 'passed'}", flush=True)
    return code


def main(arguments: list[str]) -> int:
    """The exit code: 0 if the suite passed on each release."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    chosen, options = arguments[:cut] or releases(), arguments[cut + 1 :]
    if unknown := set(chosen) - set(releases()):
        print(f"there are {', '.join(releases())}, and no {', '.join(unknown)}", file=sys.stderr)
        return 2
    capabilities.build()
    return max([test(release, options) for release in chosen])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
