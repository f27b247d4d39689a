"""csi-sanity, the stock sidecars and the snapshot-controller, each at one release, built once.

`python -m tests.suite.csitools NAME ...` builds them where they are not there, and prints where
they are.
"""

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from localvolume_lab.controlplane.assets import ComponentsMissing, cache_home
from localvolume_lab.controlplane.build import find_go, to_stderr

_FETCH_SECONDS: Final = 600
_BUILD_SECONDS: Final = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A command of a Go module, the release that is built, and the oldest Go that builds it.

    `within` are modules of the same release that it replaces by directories of its repository,
    which its own archive leaves out; `kept` are files of those, for tests. `mended` is by file what
    is wrong there, and what is built instead.
    """

    module: str
    version: str
    go: tuple[int, int]
    within: Mapping[str, str] = field(default_factory=dict)
    kept: str = ""
    mended: Mapping[str, tuple[str, str]] = field(default_factory=dict)


_SNAPSHOTTER: Final = Tool(
    module="github.com/kubernetes-csi/external-snapshotter/v8",
    version="v8.7.0",
    go=(1, 26),
    within={"client": "github.com/kubernetes-csi/external-snapshotter/client/v8"},
)
TOOLS: Final = {
    "csi-sanity": Tool(
        module="github.com/kubernetes-csi/csi-test/v5",
        version="v5.6.0",
        go=(1, 25),
        mended={
            # Two equal messages differ to it once Go has sent one, and so keeps its size: no driver
            # could pass that says where a snapshot can be used.
            "pkg/sanity/controller.go": (
                "Expect(topo).To(Equal(ni.GetAccessibleTopology()))",
                "Expect(topo.GetSegments()).To(Equal(ni.GetAccessibleTopology().GetSegments()))",
            )
        },
    ),
    "csi-provisioner": Tool(
        module="github.com/kubernetes-csi/external-provisioner/v6", version="v6.4.0", go=(1, 26)
    ),
    "csi-resizer": Tool(
        module="github.com/kubernetes-csi/external-resizer/v2", version="v2.3.0", go=(1, 26)
    ),
    "csi-snapshotter": _SNAPSHOTTER,
    "snapshot-controller": replace(_SNAPSHOTTER, kept="client/config/crd"),
}
SIDECARS: Final = ("csi-provisioner", "csi-resizer", "csi-snapshotter")


def provide(name: str) -> Path:
    """The executable, built where it is not there yet.

    With empty Go caches csi-sanity takes half a minute on two cores, and each sidecar minutes.
    Raises ComponentsMissing without Go, or where it cannot be built.
    """
    tool = TOOLS[name]
    release = f"{tool.version}-mended" if tool.mended else tool.version
    place = cache_home().parent / f"{name}-{release}" / name
    if place.exists():
        return place
    go = find_go(need=tool.go, purpose=name)
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.parent / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            to_stderr(f"Building {name} {tool.version} with {go} (minutes the first time)")
            _build(go, tool, place)
    return place


def kept_by(name: str) -> Path:
    """The directory of files that its build keeps: where these are, is the executable too."""
    return provide(name).parent / "kept"


def _build(go: Path, tool: Tool, place: Path) -> None:
    # In the module's own directory: it is built of what its go.mod and go.sum say, and `go install`
    # takes no module that replaces others.
    source = _fetched(go, tool.module, tool.version)
    with tempfile.TemporaryDirectory(dir=place.parent) as made:
        if tool.within or tool.mended:
            source = shutil.copytree(source, Path(made, "source"), copy_function=shutil.copy)
            source.chmod(0o755)
            for directory, module in tool.within.items():
                shutil.copytree(_fetched(go, module, tool.version), source / directory)
            for name, (wrong, right) in tool.mended.items():
                _mend(source / name, wrong, right)
        if tool.kept:
            shutil.rmtree(place.parent / "kept", ignore_errors=True)
            shutil.copytree(source / tool.kept, place.parent / "kept")
        built = Path(made, place.name)
        command = ["build", "-mod=readonly", "-trimpath", "-ldflags", "-s -w", "-o", str(built)]
        _go(go, [*command, f"./cmd/{place.name}"], str(source), _BUILD_SECONDS)
        built.rename(place)


def _mend(file: Path, wrong: str, right: str) -> None:
    text = file.read_text("utf-8")
    if text.count(wrong) != 1:
        raise ComponentsMissing(f"{file.name} does not have {wrong!r} once: is it mended upstream?")
    file.chmod(0o644)
    file.write_text(text.replace(wrong, right), "utf-8")


def _fetched(go: Path, module: str, version: str) -> Path:
    """The module's directory in Go's cache, which nothing may write to."""
    wanted = f"{module}@{version}"
    found: dict[str, Any] = json.loads(
        _go(go, ["mod", "download", "-json", wanted], "/", _FETCH_SECONDS)
    )
    return Path(found["Dir"])


def _go(go: Path, words: list[str], directory: str, seconds: float) -> str:
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOFLAGS": "-buildvcs=false",
    }
    try:
        done = subprocess.run(
            [str(go), *words],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ComponentsMissing(f"`go {' '.join(words)}` took over {seconds:g} s") from None
    if done.returncode != 0:
        raise ComponentsMissing(f"`go {' '.join(words)}` failed: {done.stderr[-1000:].strip()}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(TOOLS))
    for name in parser.parse_args().names:
        print(provide(name))


if __name__ == "__main__":
    main()
