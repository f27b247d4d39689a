"""Where the control plane's executables are: given by KUBEBUILDER_ASSETS, or built here once."""

import hashlib
import os
import platform
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

#: Every program that the build provides, by the name it is called by.
COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
)
#: What a ControlPlane with its defaults starts or calls.
PLANE = tuple(name for name in COMPONENTS if name != "kubelet")

SOURCE = Path(__file__).parent / "components"

Say = Callable[[str], None]


class ComponentsMissing(Exception):
    """No executables here and none can be made; the message says what to install or set."""


@dataclass(frozen=True)
class Assets:
    """The executables found, by component name."""

    paths: dict[str, Path]

    def __getitem__(self, name: str) -> Path:
        try:
            return self.paths[name]
        except KeyError:
            raise ComponentsMissing(f"there is no {name} among the components found") from None

    def missing(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self.paths]


def kubernetes_version(source: Path = SOURCE) -> str:
    """The release that the build makes, such as "v1.34.4"; go.mod is where it is set."""
    return pinned("k8s.io/kubernetes", source)


def pinned(module: str, source: Path) -> str:
    """The release of a module that the go.mod in `source` requires."""
    text = (source / "go.mod").read_text(encoding="utf-8")
    required = rf"^(?:require)?\s*{re.escape(module)} (v\S+)(?: // indirect)?$"
    if (found := re.search(required, text, re.MULTILINE)) is None:
        raise ComponentsMissing(f"{source.name}/go.mod requires no {module}")
    return found[1]


def cache_home() -> Path:
    """Our directory in the user's cache; it holds the builds and a detached plane's files."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is invalid and is ignored.
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / "local-volume-provisioner" / "controlplane"


def build_directory(source: Path = SOURCE) -> Path:
    """The place of the build of exactly that source for this machine's kind of processor."""
    return cache_home() / f"{kubernetes_version(source)}-{digest_of(source)}"


def digest_of(source: Path) -> str:
    """What only a build of exactly that source has, on this machine's kind of processor."""
    digest = hashlib.sha256(platform.machine().encode())
    for name in ("main.go", "go.mod", "go.sum"):
        digest.update((source / name).read_bytes())
    return digest.hexdigest()[:16]


def given_directory() -> Path | None:
    """KUBEBUILDER_ASSETS, the convention of controller tests; None where it is not set."""
    value = os.environ.get("KUBEBUILDER_ASSETS", "")
    if not value:
        return None
    directory = Path(value)
    if not directory.is_dir():
        raise ComponentsMissing(f"KUBEBUILDER_ASSETS names {value}, which is no directory")
    return directory


def find(names: Iterable[str] = PLANE) -> Assets:
    """What of `names` is here already; this never builds. Given executables come first."""
    given, built = given_directory(), build_directory()
    places = [built] if given is None else [given, built]
    paths: dict[str, Path] = {}
    for name in names:
        for place in places:
            if os.access(place / name, os.X_OK):
                paths[name] = place / name
                break
    return Assets(paths)
