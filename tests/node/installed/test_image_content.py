"""What is in the image: every program that ours run, ready to start on a root nobody writes to."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest

import localvolume
from benchmarks.subject import AS_IN_ITS_IMAGE
from image.application import PACKAGES, ROOT, of_the_image
from image.base import LIBRARY, VERSION, names
from image.build import Built
from localvolume.host.filesystem.xfsprogs import VERSION_COMMAND, for_older_kernels
from tests.node.support_image import PROGRAMS, Contents
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("image")

NAME = "local-volume-provisioner"
SOURCE = Path(localvolume.__file__).parent
#: Parts of the source that run on a developer's machine only.
NOT_IN_CLUSTERS = ("controlplane", "sandbox", "demonstration")
#: First words in the source that name no program there, though some machine has one of that name.
WORDS = frozenset(
    (
        *("[", "bash", "chmod", "clear", "init", "linux", "make", "mkdir", "node", "patch"),
        *("quota", "rm", "size", "users", "watch", "write"),
    )
)
#: Which programs of its own LVM runs when thin pools are activated and repaired.
BY_LVM = ("thin_check", "thin_repair", "thin_dump")
#: What an ext4 and an xfs have that any kernel since 5.10 mounts.
EXT4 = frozenset(
    (
        *("has_journal", "ext_attr", "resize_inode", "dir_index", "filetype", "extent", "64bit"),
        *("flex_bg", "sparse_super", "large_file", "huge_file", "dir_nlink", "extra_isize"),
        "metadata_csum",
    )
)
XFS = frozenset(
    (
        *("V5", "NLINK", "DIRV2", "ALIGN", "LOGV2", "EXTFLG", "MOREBITS", "ATTR2"),
        *("LAZYSBCOUNT", "PROJID32BIT", "CRC", "FTYPE", "FINOBT", "SPARSE_INODES", "REFLINK"),
        *("INOBTCNT", "BIGTIME"),
    )
)
#: What cleaning commands that an administrator names are made of.
FOR_SCRIPTS = ("sh", "dd", "shred", "env", "blkdiscard")


@pytest.fixture(scope="module")
def contents(built_image: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contents]:
    root = tmp_path_factory.mktemp("contents")
    yield Contents(built_image, root)
    shutil.rmtree(root)


def programs_of_the_source() -> set[str]:
    """First words of argument lists and of calls that this machine has a program for."""
    path = f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"
    found = set()
    for file in SOURCE.rglob("*.py"):
        if set(NOT_IN_CLUSTERS) & set(file.parts):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            words: list[ast.expr] = []
            if isinstance(node, ast.List | ast.Tuple):
                words = node.elts[:1]
            elif isinstance(node, ast.Call):
                words = node.args[:1]
            for word in words:
                match word:
                    case ast.Constant(value=str(text)) if text and shutil.which(text, path=path):
                        found.add(text)
    return found


@pytest.mark.needs("lvm", "mkfs.ext4", "mkfs.xfs", "mount", "setpriv", "wipefs")
def test_every_program_that_ours_runs_is_there(contents: Contents) -> None:
    """A new one in the source is found here: add it to the image, or to WORDS if it is none."""
    wanted = programs_of_the_source() - WORDS
    assert {"lvm", "mkfs.ext4", "mkfs.xfs", "mount", "resize2fs", "setpriv", "wipefs"} <= wanted
    absent = [
        name
        for name in sorted({*wanted, *BY_LVM, *FOR_SCRIPTS})
        if not shutil.which(name, path=_below(contents, contents.environment["PATH"]))
    ]
    assert absent == []


def test_programs_start_in_it(contents: Contents) -> None:
    for argv in (*PROGRAMS, ("sh", "-c", "dd --version && shred --version")):
        contents.run(*argv)
    # LVM's settings there: known ones, and nothing that would be written below /etc.
    assert "configuration valid" in contents.run("lvm", "lvmconfig", "--validate")
    said = contents.run("lvm", "lvmconfig", "backup/backup", "backup/archive")
    assert {"backup=0", "archive=0"} <= set(said.split())


def test_older_kernels_mount_what_it_formats(contents: Contents) -> None:
    """The node's kernel may be years older than the image's programs, which choose what kernels of
    their own time know: ext4's orphan_file is of Linux 5.15, nrext64 of XFS of 5.19."""
    place, name = contents.root / "tmp/disk", "/tmp/disk"
    with place.open("wb") as file:
        file.truncate(400 * MIB)
    features = for_older_kernels(contents.run(*VERSION_COMMAND), ())
    try:
        for argv in (("mkfs.ext4", "-q", "-F"), ("mkfs.xfs", "-q", "-f", *features)):
            subprocess.run(["chroot", contents.root, *argv, name], check=True, timeout=60)
            if argv[0] == "mkfs.ext4":
                said = contents.run("dumpe2fs", "-h", name)
                (line,) = re.findall(r"(?m)^Filesystem features: +(.*)$", said)
                assert set(line.split()) == EXT4
        assert (
            set(contents.run("xfs_db", "-r", "-c", "version", name).split()[-1].split(",")) == XFS
        )
    finally:
        place.unlink()


def test_every_library_is_there(contents: Contents) -> None:
    """Programs were left out of packages, and libraries with them: nobody else may need these."""
    loader = next(contents.root.glob("usr/lib*/ld-linux-*"))
    elves = [
        str(path.relative_to(contents.root))
        for path in contents.root.rglob("*")
        if path.is_file() and not path.is_symlink() and _is_elf(path)
    ]
    assert len(elves) > 200
    script = 'l=$1; shift; for f; do echo "/$f:"; "$l" --list "/$f" 2>&1; done; true'
    inside = f"/{loader.relative_to(contents.root)}"
    said = contents.run("sh", "-c", script, "sh", inside, *elves)
    lost = ("not found", "cannot open shared object")
    assert [line for line in said.splitlines() if any(word in line for word in lost)] == []
    assert "libc.so.6 => /" in said


def test_both_processes_start_as_anybody(contents: Contents) -> None:
    """With nothing to write to: as the controller's user, who owns nothing in the image."""
    version = metadata.version(NAME)
    assert contents.run("localvolume", "--version", user=65532).strip() == version
    for command in ("agent", "controller", "clean"):
        assert "usage:" in contents.run("localvolume", command, "--help", user=65532)
    assert "kubectl localvolume" in contents.run("kubectl-localvolume", "--help", user=65532)
    contents.run("sh", "-c", "! touch /tmp/file")
    assert contents.run("id", "-un", user=65532).strip() == "localvolume"
    client = contents.root / "usr/local/bin/localvolume-flexvolume"
    assert _is_elf(client)
    assert client.stat().st_mode & 0o777 == 0o755


def test_what_starts_is_what_the_manifests_rely_on(contents: Contents) -> None:
    assert contents.config["Entrypoint"] == ["localvolume"]
    # Agent and cleaning Jobs are root where nothing else is said; the controller's manifest does.
    assert contents.config.get("User", "") == ""
    variables = contents.environment
    assert {name: variables[name] for name in AS_IN_ITS_IMAGE} == AS_IN_ITS_IMAGE
    (name,) = contents.names
    assert name.endswith(f"/{NAME}:{metadata.version(NAME)}")


def test_python_never_compiles_there(contents: Contents) -> None:
    """Every module is compiled, for the level that is set, and not compared with its source."""
    libraries = [contents.root / LIBRARY, contents.root / PACKAGES]
    modules = [path for place in libraries for path in place.rglob("*.py")]
    assert len(modules) > 800
    unready = []
    for path in modules:
        compiled = (
            path.parent
            / "__pycache__"
            / f"{path.stem}.cpython-{VERSION.replace('.', '')}.opt-2.pyc"
        )
        # Bytes 4 to 8 are flags: 1 is "by hash", and without 2 the hash is not checked.
        if not compiled.exists() or compiled.read_bytes()[4:8] != b"\x01\0\0\0":
            unready.append(str(path))
    assert unready == []


def test_nobody_becomes_another_and_nobody_writes(contents: Contents) -> None:
    others, rights = [], []
    for directory, directories, files in os.walk(contents.root):
        for name in (*directories, *files):
            path = Path(directory, name)
            found = path.lstat()
            if stat.S_ISLNK(found.st_mode):
                continue
            if stat.S_ISREG(found.st_mode) and found.st_mode & (stat.S_ISUID | stat.S_ISGID):
                rights.append(name)
            if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
                others.append(name)
            assert (found.st_uid, found.st_gid) == (0, 0), path
            assert not stat.S_ISBLK(found.st_mode)
            assert not stat.S_ISCHR(found.st_mode)
    assert rights == []
    assert others == []


def test_it_is_small_and_says_what_it_is_made_of(
    contents: Contents, capsys: pytest.CaptureFixture[str]
) -> None:
    described = contents.root / "var/lib/dpkg/status.d"
    packages = {path.name: path.read_text() for path in described.iterdir()}
    assert set(names()) <= set(packages)
    assert all("\nVersion: " in text for text in packages.values())
    for package in ("lvm2", "e2fsprogs", f"python{VERSION}"):
        assert (contents.root / "usr/share/doc" / package / "copyright").exists()
    for unread in ("usr/share/man", "usr/share/locale", "var/cache", "var/lib/apt"):
        assert not (contents.root / unread).exists()
    with capsys.disabled():
        print(f" the image: {contents.size / MIB:.0f} MiB uncompressed", end="")
    assert contents.size < 150 * MIB


def test_the_bill_names_all_that_is_in_it(contents: Contents, built_image: Built) -> None:
    """Each package of Debian and of Python by what the image itself says, ours, and what the
    compiler has linked in. A module that belongs to none of them would be in nobody's list."""
    assert built_image.bill.name == built_image.archive.stem + ".cdx.json"
    bill = json.loads(built_image.bill.read_text())
    subject = bill["metadata"]["component"]
    assert f"{subject['name']}:{subject['version']}" == built_image.reference
    assert subject["properties"][0]["value"] == built_image.digest
    named = {(one["purl"].split("/")[0], one["name"], one["version"]): one
             for one in bill["components"] if "purl" in one}  # fmt: skip
    there = set()
    for path in (contents.root / "var/lib/dpkg/status.d").iterdir():
        said = Parser().parsestr(path.read_text())
        there.add(("pkg:deb", said["Package"], said["Version"]))
        digest = {"alg": "SHA-256", "content": said["SHA256"]}
        assert named["pkg:deb", said["Package"], said["Version"]]["hashes"] == [digest]
    for one in metadata.distributions(path=[str(contents.root / PACKAGES)]):
        kind = "pkg:generic" if one.name == NAME else "pkg:pypi"
        there.add((kind, re.sub(r"[-_.]+", "-", one.name).lower(), one.version))
    client = ("pkg:generic", "localvolume-flexvolume", metadata.version(NAME))
    (go,) = (one for one in named if one[0] == "pkg:golang")
    assert go[1] == "stdlib"
    assert re.match(r"1\.\d+", go[2])
    written = ("pkg:generic", f"{NAME}-image", metadata.version(NAME))
    assert named.keys() == {*there, client, go, written}
    locked = of_the_image((ROOT / "requirements/runtime.txt").read_text())
    for name, version in re.findall(r"(?m)^([\w.-]+)==([\w.]+)", locked):
        assert ("pkg:pypi", name.lower(), version) in named


def _below(contents: Contents, path: str) -> str:
    return ":".join(f"{contents.root}{directory}" for directory in path.split(":"))


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
