"""Installs the driver's client where the kubelet looks for volume plugins.

`<plugin directory>/<vendor>~<driver>/<driver>`, and `.socket` beside it with the socket's path on
the host. Each file is written under a hidden name, synced and renamed, so that the kubelet, which
watches the directory and runs what appears in it, never meets half of one.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Final

from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.host.tree.trees import (
    TEMPORARY,
    list_names,
    opened,
    put_staged,
    read_file,
    stage_file,
    sync_directory,
)

SOCKET_FILE: Final = ".socket"
_MOST_BYTES: Final = 64 << 20
_DIRECTORY_MODE: Final = 0o755
_PROGRAM_MODE: Final = 0o755
_FILE_MODE: Final = 0o644
_PLACE: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class NotInstalled(Exception):
    """The client could not be installed: correct what the text says; it is tried again."""


def install(config: FlexVolumeConfig) -> list[str]:
    """Install the client under every name; returns the paths that were written or repaired.

    Files that are right already are left as they are, so that the kubelet is not woken.
    Raises NotInstalled. Does nothing if no client is configured.
    """
    if not config.client:
        return []
    try:
        program = _read(config.client)
    except OSError as error:
        raise NotInstalled(f"the client {config.client}: {error.strerror}") from error
    if not program:
        raise NotInstalled(f"the client {config.client} is empty")
    socket = f"{config.socket_on_host}\n".encode()
    changed: list[str] = []
    try:
        os.makedirs(config.plugin_directory, mode=_DIRECTORY_MODE, exist_ok=True)
        root = os.open(config.plugin_directory, _PLACE)
        try:
            for name in config.names:
                vendor, _, driver = name.partition("/")
                inner = f"{vendor}~{driver}"
                where = f"{config.plugin_directory}/{inner}"
                _make_directory(root, inner)
                with opened(root, inner) as fd:
                    _sweep(fd)
                    # The socket's path first: the program may be run as soon as it is there.
                    if _put(fd, SOCKET_FILE, socket, _FILE_MODE):
                        changed.append(f"{where}/{SOCKET_FILE}")
                    if _put(fd, driver, program, _PROGRAM_MODE):
                        changed.append(f"{where}/{driver}")
        finally:
            os.close(root)
    except OSError as error:
        where = f"{config.plugin_directory}: {error.filename or ''}"
        raise NotInstalled(f"{where.rstrip(': ')}: {error.strerror}") from error
    return changed


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise OSError(0, f"is larger than {_MOST_BYTES >> 20} MiB", path)
    return content


def _make_directory(root: int, name: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, _DIRECTORY_MODE, dir_fd=root)
        sync_directory(root)
    with opened(root, name) as fd:
        if stat.S_IMODE(os.fstat(fd).st_mode) != _DIRECTORY_MODE:
            os.fchmod(fd, _DIRECTORY_MODE)


def _sweep(fd: int) -> None:
    """Remove what a killed agent left half written."""
    for name in list_names(fd):
        if name.startswith(TEMPORARY):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)


def _put(fd: int, name: str, content: bytes, mode: int) -> bool:
    """Give the file that content and mode; returns whether anything was done."""
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        same = stat.S_ISREG(found.st_mode) and found.st_size == len(content)
        if same and found.st_uid == 0 and read_file(fd, name, len(content)) == content:
            if stat.S_IMODE(found.st_mode) == mode:
                return False
            os.chmod(name, mode, dir_fd=fd)
            return True
    except FileNotFoundError:
        pass
    temporary = stage_file(fd, content, mode=mode)
    # The umask may have taken bits from the mode; the rename shows the file complete.
    os.chmod(temporary, mode, dir_fd=fd)
    put_staged(fd, temporary, name)
    sync_directory(fd)
    return True
