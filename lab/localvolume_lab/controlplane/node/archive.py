"""Docker archives without Docker: layers from files, the same bytes for the same files.

The format is that of `docker save` (image specification 1.2): manifest.json, a configuration and
layers, each a tar named after its digest. Nothing is compressed: it is read once, from this disk.
"""

import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

#: The processor's name for containers by the kernel's name for it.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Packed(Protocol):
    """A layer that is a tar, or becomes one."""

    def tar(self) -> bytes: ...


class Layer:
    """One layer, filled by adding to it; owner root, times zero."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[tarfile.TarInfo, bytes]] = {}

    def directory(self, name: str, mode: int = 0o755) -> None:
        self._add(name, tarfile.DIRTYPE, mode, b"")

    def file(self, name: str, data: bytes, mode: int = 0o644) -> None:
        self._parents(name)
        self._add(name, tarfile.REGTYPE, mode, data)

    def link(self, name: str, target: str) -> None:
        """A symbolic link."""
        self._parents(name)
        self._add(name, tarfile.SYMTYPE, 0o777, b"").linkname = target

    def copy(self, source: str | os.PathLike[str], name: str) -> None:
        """A file of the machine, links followed, with its mode but nobody else's right to write."""
        with open(source, "rb") as file:
            executable = os.fstat(file.fileno()).st_mode & stat.S_IXUSR
            self.file(name, file.read(), 0o755 if executable else 0o644)

    def tar(self) -> bytes:
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for _, (info, data) in sorted(self._entries.items()):
                tar.addfile(info, io.BytesIO(data) if data else None)
        return whole.getvalue()

    def _parents(self, name: str) -> None:
        for parent in reversed(Path(name.strip("/")).parents[:-1]):
            if str(parent) not in self._entries:
                self.directory(str(parent))

    def _add(self, name: str, kind: bytes, mode: int, data: bytes) -> tarfile.TarInfo:
        info = tarfile.TarInfo(name.strip("/"))
        info.type, info.mode, info.size = kind, mode, len(data)
        self._entries[info.name] = info, data
        return info


def write(
    path: Path,
    reference: str,
    layers: Sequence[Packed],
    *,
    command: Sequence[str],
    environment: Mapping[str, str],
    stop_signal: str = "SIGTERM",
    volumes: Sequence[str] = (),
) -> None:
    """An archive of one image, `reference` with a tag; the first layer is the lowest.

    `stop_signal`: by which its containers are asked to end. `volumes`: where each container has an
    empty directory of its own, if its pod mounts nothing at just that path.
    """
    tars = [layer.tar() for layer in layers]
    digests = [hashlib.sha256(tar).hexdigest() for tar in tars]
    machine = os.uname().machine
    configuration: dict[str, Any] = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {
            "Env": [f"{key}={value}" for key, value in environment.items()],
            "Cmd": list(command),
            "StopSignal": stop_signal,
            "Volumes": {path: {} for path in volumes},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created_by": "localvolume"} for _ in digests],
    }
    described = json.dumps(configuration).encode()
    name = f"{hashlib.sha256(described).hexdigest()}.json"
    names = [f"{digest}/layer.tar" for digest in digests]
    manifest = json.dumps([{"Config": name, "RepoTags": [reference], "Layers": names}]).encode()
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for entry, data in [(name, described), *zip(names, tars, strict=True)]:
            _put(tar, entry, data)
        _put(tar, "manifest.json", manifest)


def _put(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
