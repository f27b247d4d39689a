"""What files an image has, and which component each of them comes from."""

import csv
import hashlib
import json
import re
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from image.running import BuildFailed

#: What the build writes itself, rather than taking it from a package.
_WRITTEN = (
    *("/etc/passwd", "/etc/group", "/etc/lvm/lvm.conf", "/etc/mke2fs.conf"),
    *("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"),
)
_DESCRIPTIONS = "/var/lib/dpkg/"
_COMPILED = re.compile(r"(.*/)__pycache__/([^/]+)\.cpython-\d+(?:\.opt-\d)?\.pyc")


@dataclass(frozen=True, order=True)
class File:
    """One by its path from the root: the digest of its content, or what it is a link to."""

    path: str
    sha256: str = ""
    target: str = ""


def of_archive(archive: Path) -> list[File]:
    """The files of all layers of a docker archive; raises BuildFailed."""
    found: dict[str, File] = {}
    with tarfile.open(archive) as outer:
        (manifest,) = json.load(_content(outer, outer.getmember("manifest.json")))
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=_content(outer, outer.getmember(name))) as layer:
                for member in layer:
                    if (file := _file(layer, member, found)) is not None:
                        found[file.path] = file
    return sorted(found.values())


def _file(
    layer: tarfile.TarFile, member: tarfile.TarInfo, before: Mapping[str, File]
) -> File | None:
    path = _path(member.name)
    if member.isdir():
        return None
    if "/.wh." in path:
        raise BuildFailed(f"a layer of the image removes {path}: no layer should")
    if member.issym():
        return File(path, target=member.linkname)
    if member.islnk():
        other = before[_path(member.linkname)]
        return File(path, other.sha256, other.target)
    if not member.isreg():
        raise BuildFailed(f"the image has {path}, which is neither a file nor a link")
    return File(path, hashlib.sha256(_content(layer, member).read()).hexdigest())


def _path(name: str) -> str:
    return "/" + name.removeprefix("./").lstrip("/")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(member)
    if file is None:
        raise BuildFailed(f"{member.name} of an archive is no file")
    return file


@dataclass(frozen=True)
class Origins:
    """Where files come from: the components by their references in a bill."""

    listed: Mapping[str, str]
    """Of what packages list: components by paths."""
    below: Mapping[str, str]
    """Of directories and files that are ours alone: components by paths, the longest counts."""
    build: str
    """Of what the build writes."""

    def of(self, path: str) -> str:
        """The component of a file; raises BuildFailed where it has none."""
        if path in _WRITTEN or path.startswith(_DESCRIPTIONS):
            return self.build
        if (match := _COMPILED.fullmatch(path)) is not None:
            return self.of(f"{match[1]}{match[2]}.py")
        ours = [place for place in self.below if path == place or path.startswith(f"{place}/")]
        if ours:
            return self.below[max(ours, key=len)]
        if (component := self.listed.get(path)) is None:
            raise BuildFailed(f"nothing says where {path} of the image comes from")
        return component


def by_component(files: Iterable[File], origins: Origins) -> dict[str, list[File]]:
    """The files of each component by its reference; raises BuildFailed for one that has none."""
    found: dict[str, list[File]] = {}
    for file in files:
        found.setdefault(origins.of(file.path), []).append(file)
    return found


def recorded(packages: Path, place: str) -> dict[str, str]:
    """The directories that describe packages of Python, by the paths of those packages' files.

    `packages` is found as `place` in the image.
    """
    found = {}
    for record in packages.glob("*.dist-info/RECORD"):
        with record.open(newline="") as file:
            for path, *_ in csv.reader(file):
                found[f"/{place}/{path}"] = record.parent.name
    return found
