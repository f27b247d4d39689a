"""helm, pinned, built once outside the tree, and what the chart renders with it.

`python -m tests.chart.support_helm` builds it where it is not there, and prints its path.
"""

import argparse
import fcntl
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import yaml

from localvolume_lab.controlplane.assets import cache_home, kubernetes_version
from localvolume_lab.controlplane.build import find_go, to_stderr

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "charts" / "local-volume-provisioner"
NAME: Final = "local-volume-provisioner"
"""Of the chart; also of release and namespace where nothing else is said."""

VERSION: Final = "v3.19.0"
_MODULE: Final = "helm.sh/helm/v3"
_BUILD_SECONDS: Final = 1200
_RUN_SECONDS: Final = 120

Values = Mapping[str, Any]


class Refused(Exception):
    """helm does not take these values, or this chart; the text is what it says."""


def provide() -> Path:
    """The executable, built where it is not there yet: two to five minutes with empty Go caches.

    Raises ComponentsMissing without Go, CalledProcessError where it cannot be built.
    """
    place = cache_home().parent / f"helm-{VERSION}" / "helm"
    if place.exists():
        return place
    go = find_go()
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.parent / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            to_stderr(f"Building helm {VERSION} with {go} (two to five minutes the first time)")
            _build(go, place)
    return place


def _build(go: Path, place: Path) -> None:
    # Left out, helm takes the cluster that it renders for to be of an ancient release.
    _, minor, _ = kubernetes_version().split(".", 2)
    stamps = " ".join(
        f"-X {_MODULE}/pkg/{where}.k8sVersion{part}={number}"
        for where in ("chartutil", "lint/rules")
        for part, number in (("Major", "1"), ("Minor", minor))
    )
    with tempfile.TemporaryDirectory(dir=place.parent) as made:
        subprocess.run(
            [
                *(str(go), "install", "-trimpath", "-ldflags", f"-s -w {stamps}"),
                f"{_MODULE}/cmd/helm@{VERSION}",
            ],
            cwd="/",
            env={
                **os.environ,
                "GOBIN": made,
                "CGO_ENABLED": "0",
                "GOTOOLCHAIN": "local",
                "GOWORK": "off",
                "GOFLAGS": "-buildvcs=false",
            },
            stdin=subprocess.DEVNULL,
            timeout=_BUILD_SECONDS,
            check=True,
        )
        Path(made, "helm").rename(place)


def helm(*words: str | Path, home: Path | None = None) -> str:
    """What helm prints to standard output. It reads and writes nothing of the user's own.

    `home` is kept between calls, as for a release's storage; raises Refused with what it says.
    """
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [provide(), *words],
            env={"PATH": os.defpath, "HOME": str(home or scratch)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
            check=False,
        )
    if done.returncode != 0:
        raise Refused(f"{done.stdout}{done.stderr}")
    return done.stdout


def render_text(
    values: Values | Path | None = None,
    *,
    release: str = NAME,
    namespace: str = NAME,
    only: Sequence[str] = (),
) -> str:
    """The chart's manifests with these values (or values file), all or `only` of some templates."""
    words: list[str | Path] = ["template", release, CHART, "--namespace", namespace]
    for template in only:
        words += ["--show-only", f"templates/{template}"]
    if isinstance(values, Path):
        return helm(*words, "--values", values)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(dict(values or {}), file)
        file.flush()
        return helm(*words, "--values", Path(file.name))


def render(values: Values | Path | None = None, **more: Any) -> list[dict[str, Any]]:
    """The same as objects."""
    return [one for one in yaml.load_all(render_text(values, **more), yaml.CSafeLoader) if one]


def one(objects: Sequence[dict[str, Any]], kind: str, name: str | None = None) -> dict[str, Any]:
    """The one object of this kind, and name if several."""
    found = [
        each
        for each in objects
        if each["kind"] == kind and name in (None, each["metadata"]["name"])
    ]
    assert len(found) == 1, [(each["kind"], each["metadata"]["name"]) for each in objects]
    return found[0]


def pod_of(objects: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The spec of the pods of the one object of this kind."""
    pod: dict[str, Any] = one(objects, kind)["spec"]["template"]["spec"]
    return pod


def agent_of(objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The agent's container."""
    (container,) = pod_of(objects, "DaemonSet")["containers"]
    found: dict[str, Any] = container
    return found


def understood(args: Sequence[str]) -> argparse.Namespace:
    """A container's arguments, as our command reads them; SystemExit where it does not."""
    command, *flags = args
    parser = argparse.ArgumentParser(prog=command)
    import_module(f"localvolume.cli.{command}").add_arguments(parser)
    return parser.parse_args(flags)


if __name__ == "__main__":
    print(provide())
