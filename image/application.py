"""What the image has of ours: the package, what it requires by the lock, commands, the client."""

import csv
import hashlib
import os
import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from packaging.markers import Marker

from image.architectures import here, machine
from image.base import PYTHON, VERSION
from image.running import CACHE, remove, run, used

#: The tree that this file is in: the other parameters called `tree` are this, or a copy of it.
ROOT = Path(__file__).resolve().parent.parent
CLIENT = "build/localvolume-flexvolume"
NAME = "local-volume-provisioner"
PACKAGES = f"usr/local/lib/python{VERSION}/dist-packages"
#: What no program reads: compiled parts that the Containerfile's variables turn off, and what was
#: compiled or checked from.
_UNREAD = (
    *("aiohttp/**/*.so", "propcache/*.so", "yarl/*.so"),
    *("**/*.pyx", "**/*.pxd", "**/*.pyi", "**/*.c", "**/*.h", "**/*.hash"),
    *("bin", "share"),
    # They tell of the directory, and of the pip that ran.
    *(f"*.dist-info/{name}" for name in ("REQUESTED", "INSTALLER", "direct_url.json")),
)
#: The oldest C library first: wheels of any up to the distribution's own will do.
_PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_31")
#: Where an entry of the lock begins: its hashes are on lines of their own, further in.
_ENTRY = re.compile(r"^(?=\S)", re.MULTILINE)
_LAUNCHER = """#!{python}
import sys

from {module} import {function}

sys.exit({function}())
"""


def version(tree: Path) -> str:
    """What is built from `tree`, which is the image's tag."""
    return str(_project(tree)["version"])


def client(tree: Path, architecture: str) -> Path:
    """Where the FlexVolume client of an architecture is built."""
    name = CLIENT if architecture == here() else f"build/{architecture}/localvolume-flexvolume"
    return tree / name


def write(root: Path, tree: Path, required: Path, architecture: str) -> None:
    """Make the directory `root`, which is laid over the base; `required` is what `requirements`
    gave."""
    packages = root / PACKAGES
    shutil.copytree(required, packages)
    shutil.copytree(
        tree / "src" / "localvolume",
        packages / "localvolume",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    _describe(packages, tree)
    commands = root / "usr/local/bin"
    commands.mkdir(parents=True)
    for name, place in _project(tree)["scripts"].items():
        module, _, function = place.partition(":")
        text = _LAUNCHER.format(python=PYTHON, module=module, function=function)
        (commands / name).write_text(text)
    shutil.copyfile(client(tree, architecture), commands / "localvolume-flexvolume")
    _agree_on_modes(root)


def _project(tree: Path) -> dict[str, Any]:
    with (tree / "pyproject.toml").open("rb") as file:
        project: dict[str, Any] = tomllib.load(file)["project"]
    return project


def requirements(tree: Path, architecture: str) -> Path:
    """The locked packages of an architecture as one directory; raises BuildFailed.

    From the cache if they are there.
    """
    locked = tree / "requirements" / "runtime.txt"
    lock = of_the_image(locked.read_text())
    recipe = "\n".join([lock, machine(architecture), Path(__file__).read_text()])
    path = CACHE / f"requirements-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    if path.exists():
        return used(path)
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        new, listed = Path(directory, "packages"), Path(directory, locked.name)
        listed.write_text(lock)
        run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes"),
                *("--requirement", str(listed), "--target", str(new), "--no-compile", "--no-deps"),
                *("--only-binary=:all:", "--implementation=cp", f"--python-version={VERSION}"),
                *(f"--platform={name}" for name in platforms(architecture)),
            ]
        )
        for pattern in _UNREAD:
            remove(new, pattern)
        for record in new.glob("*.dist-info/RECORD"):
            _keep_what_is_there(record)
        new.rename(path)
    return used(path)


def _keep_what_is_there(record: Path) -> None:
    """Take out of a list of files which are not in the image, in an order of its own."""
    packages = record.parent.parent
    with record.open(newline="") as file:
        rows = [row for row in csv.reader(file) if row and (packages / row[0]).is_file()]
    with record.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            sorted(row for row in rows if not row[0].startswith(".."))
        )


def platforms(architecture: str) -> list[str]:
    """The platforms whose wheels run on an architecture; raises BuildFailed."""
    return [f"{name}_{machine(architecture)}" for name in _PLATFORMS]


def of_the_image(lock: str, version: str = VERSION) -> str:
    """What of a lock a Python requires, the image's or another. pip would judge by the Python that
    runs it."""
    python = {"python_version": version, "python_full_version": f"{version}.0"}
    kept = []
    for entry in _ENTRY.split(lock):
        requirement, _, hashes = entry.partition(" \\\n")
        if entry.startswith("#") or not hashes:
            continue
        name, _, marker = requirement.partition(";")
        if not marker or Marker(marker).evaluate(python):
            kept.append(f"{name.rstrip()} \\\n{hashes}")
    return "".join(kept)


def information_of(number: str) -> str:
    """The directory that describes our package."""
    return f"{NAME.replace('-', '_')}-{number}.dist-info"


def _describe(packages: Path, tree: Path) -> None:
    """So that `localvolume --version` is told, as of an installed package."""
    information = packages / information_of(version(tree))
    information.mkdir()
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version(tree)}\nLicense: Apache-2.0\n"
    )
    shutil.copyfile(tree / "LICENSE", information / "LICENSE")


def _agree_on_modes(root: Path) -> None:
    """Whatever the umask was where this tree was checked out."""
    for directory, _, files in os.walk(root):
        Path(directory).chmod(0o755)
        for name in files:
            path = Path(directory, name)
            path.chmod(0o755 if path.parent.name == "bin" else 0o644)
