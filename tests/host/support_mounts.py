"""Real mounts for tests, by mount(2) itself: the mount command has its own ideas about names."""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import pytest

from tests.suite.programs import require

MS_RDONLY = 1
MS_REMOUNT = 32
MS_BIND = 4096
MS_MOVE = 8192
MS_PRIVATE = 1 << 18
MS_SHARED = 1 << 20
MNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, fs_type: str = "", flags: int = 0, data: str = "") -> None:
    """Call mount(2); raises OSError."""
    if _libc.mount(
        os.fsencode(source), os.fsencode(target), fs_type.encode(), flags, data.encode()
    ):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def umount(target: str, flags: int = 0) -> None:
    """Call umount2(2); raises OSError."""
    if _libc.umount2(os.fsencode(target), flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


class Mounts:
    """Makes mounts and undoes them all in the end, whatever the test did with them meanwhile."""

    def __init__(self) -> None:
        self._targets: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for target in reversed(self._targets):
            with contextlib.suppress(OSError):
                umount(target, MNT_DETACH)

    def tmpfs(
        self, target: str, *, source: str = "tmpfs", flags: int = 0, options: str = "size=1m"
    ) -> str:
        """Mount a tmpfs of 1 MiB, making the directory where it is missing."""
        os.makedirs(target, exist_ok=True)
        mount(source, target, "tmpfs", flags, options)
        self._targets.append(target)
        return target

    def bind(self, source: str, target: str) -> str:
        """Bind ``source`` to ``target``, making the directory where it is missing."""
        os.makedirs(target, exist_ok=True)
        mount(source, target, flags=MS_BIND)
        self._targets.append(target)
        return target

    def move(self, source: str, target: str) -> str:
        """Move a mount."""
        mount(source, target, flags=MS_MOVE)
        self._targets.append(target)
        return target

    def shared(self, target: str) -> None:
        """Make later mounts below ``target`` appear in the namespaces copied from ours."""
        mount("", target, flags=MS_SHARED)

    def umount(self, target: str, *, lazily: bool = False) -> None:
        """Undo the topmost mount of ``target``."""
        umount(target, MNT_DETACH if lazily else 0)


@contextlib.contextmanager
def restless(place: str) -> Iterator[None]:
    """Each time that the mount table has been read, it is changed: at `place`, made for that."""
    real_read = os.read

    def read_and_change(descriptor: int, size: int) -> bytes:
        data = real_read(descriptor, size)
        if not data and os.readlink(f"/proc/self/fd/{descriptor}").endswith("/mountinfo"):
            mounts.tmpfs(place)
            mounts.umount(place)
        return data

    with Mounts() as mounts, pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "read", read_and_change)
        yield


@contextlib.contextmanager
def mount_namespace(commands: str, *, propagation: str = "private") -> Iterator[int]:
    """Run shell ``commands`` in a new mount namespace, keep it alive, and yield a process in it."""
    require("unshare")
    process = subprocess.Popen(
        [
            "unshare",
            "--mount",
            "--propagation",
            propagation,
            "sh",
            "-ec",
            commands + "\necho; read x",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            assert process.stdout.readline() == b"\n", "the commands failed"
            yield process.pid
        finally:
            process.kill()
