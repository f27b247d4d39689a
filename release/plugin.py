"""The kubectl plugin: one file that a Python of the user's runs, and krew's description of it."""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import yaml
from packaging import tags

from image.application import NAME, of_the_image, platforms
from image.architectures import MACHINES, machine
from image.running import run
from release.archives import Entry, tar_gz
from release.order import Order

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
COMMAND = "kubectl-localvolume"
_DESCRIPTION = """\
Shows volumes, pools and disks that local-volume-provisioner serves, and why a claim waits.
"""
_CAVEATS = """\
Python 3.11, 3.12, 3.13 or 3.14 is needed, as python3 in PATH. The first run unpacks the program
below ~/.cache/pex.
"""


def make(tree: Path, into: Path, order: Order, wheel: Path) -> None:
    """Write an archive for each processor, and the description; raises BuildFailed."""
    described = []
    for architecture in MACHINES:
        name = f"{COMMAND}-{order.version}-linux-{architecture}.tar.gz"
        with tempfile.TemporaryDirectory(dir=into.parent) as scratch:
            program = _program(tree, Path(scratch), order, wheel, architecture)
            entries = {
                COMMAND: Entry(program.read_bytes(), 0o755),
                "LICENSE": Entry((tree / "LICENSE").read_bytes()),
            }
        archive = tar_gz(entries, order.epoch)
        (into / name).write_bytes(archive)
        described.append(
            {
                "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
                "uri": order.download(name),
                "sha256": hashlib.sha256(archive).hexdigest(),
                "bin": COMMAND,
            }
        )
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "localvolume"},
        "spec": {
            "version": f"v{order.version}",
            "homepage": order.source,
            "shortDescription": "Look into local volumes of your nodes",
            "description": _DESCRIPTION,
            "caveats": _CAVEATS,
            "platforms": described,
        },
    }
    (into / "krew-localvolume.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))


def _program(tree: Path, scratch: Path, order: Order, wheel: Path, architecture: str) -> Path:
    """One file with the locked wheels for each Python, of which the one that runs it takes its
    own. Compiled modules cannot be imported from a zip, so pex unpacks them."""
    wheels, locked = scratch / "wheels", (tree / "requirements" / "runtime.txt").read_text()
    wheels.mkdir()
    shutil.copyfile(wheel, wheels / wheel.name)
    targets: list[str] = []
    for python in PYTHONS:
        listed, target = scratch / f"{python}.txt", scratch / f"{python}.json"
        listed.write_text(of_the_image(locked, python))
        run(
            [
                *(sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes"),
                *("--requirement", str(listed), "--dest", str(wheels), "--no-deps"),
                *("--only-binary=:all:", "--implementation=cp", f"--python-version={python}"),
                *(f"--platform={name}" for name in platforms(architecture)),
            ]
        )
        target.write_text(json.dumps(_described(python, architecture)))
        targets += ["--complete-platform", str(target)]
    made = scratch / COMMAND
    run(
        [
            # Settings of the machine that builds would go into the file: where pex caches, for one.
            *("env", "-i", f"HOME={scratch}", f"PATH={os.environ['PATH']}"),
            *(f"SOURCE_DATE_EPOCH={order.epoch}", sys.executable, "-m", "pex"),
            *("--disable-cache", "--pre-resolved-dists", str(wheels)),
            *(f"{NAME}=={order.version}", "--console-script", COMMAND, *targets),
            *("--python-shebang", "/usr/bin/env python3", "--output-file", str(made)),
        ],
        seconds=600,
    )
    return made


def _described(python: str, architecture: str) -> dict[str, object]:
    """A Python of the users', as pex asks for it."""
    number = tuple(int(part) for part in python.split("."))
    return {
        "marker_environment": {
            "implementation_name": "cpython",
            "implementation_version": f"{python}.0",
            "os_name": "posix",
            "platform_machine": machine(architecture),
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{python}.0",
            "python_version": python,
            "sys_platform": "linux",
        },
        "compatible_tags": [str(tag) for tag in _tags(number, architecture)],
    }


def _tags(number: tuple[int, ...], architecture: str) -> Iterator[tags.Tag]:
    names = platforms(architecture)
    yield from tags.cpython_tags(number, platforms=names)
    yield from tags.compatible_tags(number, f"cp{''.join(map(str, number))}", names)
