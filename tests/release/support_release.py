"""A tree that a release can be made of, and a registry to push one to."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from image.application import ROOT, version
from image.provenance import Builder
from localvolume_lab.controlplane.ports import free_ports
from release.order import Order
from tests.suite.until import until

#: As a registry has it: no image is built for tests that only name one.
IMAGE = f"sha256:{'1' * 64}"
_LEFT_OUT = ("tests", "benchmarks")


def tree(place: Path) -> Path:
    """What a release is made of, with a changelog that has its version; returns `place`.

    What git does not know is left out: somebody may write to it while two trees are compared.
    Mark with needs("git").
    """
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in tracked.stdout.decode().split("\0"):
        if not name or name.split("/")[0] in _LEFT_OUT:
            continue
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place / name)
    return _with_section(place)


def _with_section(place: Path) -> Path:
    log = place / "CHANGELOG.md"
    named = f"## [{version(place)}] - 2026-11-28\n\n### Added\n\n- All of it.\n"
    log.write_text(log.read_text().replace("## [Unreleased]\n", f"## [Unreleased]\n\n{named}", 1))
    return place


def example(number: str) -> Order:
    return Order(
        version=number,
        commit="c" * 40,
        epoch=1795824000,
        registry="registry.example/somebody",
        source="https://forge.example/somebody/it",
        builder=Builder("https://builder.example/one"),
    )


@contextlib.contextmanager
def registry(directory: Path) -> Iterator[str]:
    """The address of an empty one; mark with needs("docker-registry")."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    settings = directory / "registry.yaml"
    settings.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {directory / 'stored'}}}}}\n"
        f"http: {{addr: {address}}}\n"
    )
    with (
        (directory / "log").open("wb") as log,
        subprocess.Popen(["docker-registry", "serve", settings], stdout=log, stderr=log) as process,
    ):
        try:
            until(lambda: _serves(address))
            yield address
        finally:
            process.terminate()


def _serves(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/v2/", timeout=10):
            return True
    except OSError:
        return False


def pushed(archive: Path, to: str) -> str:
    """Push an OCI archive with all that is in it; returns the digest that the registry has."""
    said = archive.with_suffix(".digest")
    argv = ["skopeo", "copy", "--quiet", "--all", "--dest-tls-verify=false"]
    argv += [f"--digestfile={said}", f"oci-archive:{archive}", f"docker://{to}"]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, timeout=300)
    return said.read_text().strip()
