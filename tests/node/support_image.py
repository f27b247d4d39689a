"""The image as it is built, for tests: its files, its description, and into which node it goes."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from image.application import CLIENT, ROOT
from image.build import Built
from image.mirror import sources
from image.running import BuildFailed

#: The image's own, which chroot looks in, with the machine's for what is run before.
_PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LOCK = "requirements/runtime.txt"
#: Programs of the image that say what they are, without touching anything.
PROGRAMS = (
    *(("lvm", "version"), ("dmsetup", "--version"), ("thin_check", "--version")),
    *(("mkfs.ext4", "-V"), ("e2fsck", "-V"), ("debugfs", "-V")),
    *(("mkfs.xfs", "-V"), ("xfs_repair", "-V")),
    *(("setpriv", "--version"), ("wipefs", "--version"), ("blkdiscard", "--version")),
    *(("mount", "--version"), ("ionice", "--version"), ("btrfs", "--version")),
)
_READ_ONLY = """
mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; mount --bind /proc "$1/proc"
root=$1 user=$2; shift 2
exec chroot --userspec="$user" "$root" "$@"
"""


def missing() -> str | None:
    """None where the image can be built, as far as that is known without trying."""
    try:
        sources()
    except BuildFailed as problem:
        return f"no image can be built: {problem}"
    return None


def copy_of_tree(copy: Path) -> Path:
    """What the image is built from, as it is now; returns `copy`."""
    argv = ["make", "--no-print-directory", "-C", str(ROOT), "flexvolume-client"]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, timeout=600)
    for name in (".gitignore", "Makefile", "pyproject.toml", "LICENSE", _LOCK, CLIENT):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("src/localvolume", "flexvolume-client", "image"):
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    return copy


class Contents:
    """An image taken apart: `root` has the files of all layers."""

    def __init__(self, built: Built, root: Path) -> None:
        self.root = root
        root.chmod(0o755)  # others than root look into it too
        self.size = built.archive.stat().st_size
        """Bytes of all layers, uncompressed."""
        with tarfile.open(built.archive) as archive:
            (manifest,) = json.load(_member(archive, "manifest.json"))
            self.description: dict[str, Any] = json.load(_member(archive, manifest["Config"]))
            self.names: list[str] = manifest["RepoTags"]
            for layer in manifest["Layers"]:
                with tarfile.open(fileobj=_member(archive, layer)) as tar:
                    tar.extractall(root, filter="fully_trusted", numeric_owner=True)
        self.config: dict[str, Any] = self.description["config"]

    @property
    def environment(self) -> dict[str, str]:
        return dict(variable.split("=", 1) for variable in self.config["Env"])

    def run(self, *argv: str, user: int = 0) -> str:
        """Output of a program of the image, as that user, on a root that nobody may write to."""
        inside = ["sh", "-ec", _READ_ONLY, "sh", str(self.root), f"{user}:{user}", *argv]
        done = subprocess.run(
            ["unshare", "--mount", "--propagation=private", *inside],
            env={**self.environment, "PATH": _PATH},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Another processor's programs are emulated: that is many times as slow.
            timeout=600,
        )
        assert done.returncode == 0, f"{argv}: {done.stdout}"
        return done.stdout


def _member(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    assert file is not None, name
    return file
