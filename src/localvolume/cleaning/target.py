"""What is to be cleaned, and the descriptor that holds it, for all checks and destructive calls.

A path is only a name: between the plan and the cleaning it may come to mean another disk, or the
directory below a filesystem that was unmounted. So the volume is opened once, everything that was
planned is checked on the descriptor, and every destructive call goes through that descriptor.

A block device is opened with O_EXCL and stays open like that while our own methods work: the kernel
then refuses mounts, mkfs, device mapper and md. Commands of our own are handed this descriptor. An
administrator's command opens the path itself, and under O_EXCL its mkfs or wipefs would fail with
EBUSY. Only for such a command, `Held.loosen` replaces the exclusive descriptor by a plain one, once
it has shown that nobody uses the device.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from localvolume.cleaning.method import VolumeKind
from localvolume.cleaning.receipt import CleaningRefused
from localvolume.host.block.blockdev import (
    InUse,
    NotABlockDevice,
    exclusive_open,
    loops_on,
    probe_block_device,
    size_bytes,
)
from localvolume.host.filesystem.filesystems import Changed, identity_of_mount, probe_filesystem
from localvolume.host.locks import lock_device, lock_directory
from localvolume.host.mount.mounts import Mount, read_mount_table
from localvolume.host.syscalls import closed_after
from localvolume.host.syscalls import mount_id as mount_id_of
from localvolume.host.tree.entries import device_number
from localvolume.host.users import Users
from localvolume.volumes.identity import Identity, unchanged

P = ParamSpec("P")
R = TypeVar("R")


def _nothing_more() -> None:
    """The default recheck does nothing: the identity is enough."""


@dataclass(frozen=True, slots=True)
class Target:
    """One volume, as it was planned.

    `path`: the container path, absolute; a block device may be reached by symbolic links, a
    filesystem's mount point may not.
    `device`: `major:minor` of the block device, or of the filesystem as the mount table or `stat`
    has it (they differ on btrfs).
    `mount_id`: of the mount at `path`, for a filesystem; the kernel reuses these numbers, so it
    counts only together with the identity.
    `identity`: what was recorded when the volume was published (volumes.identity); None only if
    `recheck` proves in another way which volume it is.
    `recheck`: called once more after all our own checks, from a worker thread, with the volume
    open; raises CleaningRefused to leave the volume alone.

    Raises ValueError if something is missing that the checks need.
    """

    kind: VolumeKind
    path: str
    device: str | None
    mount_id: int | None = None
    recheck: Callable[[], None] = _nothing_more
    identity: Identity | None = None

    def __post_init__(self) -> None:
        if not os.path.isabs(self.path):
            raise ValueError(f"a volume's path must be absolute: {self.path!r}")
        if self.device is None:
            raise ValueError(f"{self.path}: which device it is must be known before it is cleaned")
        if self.kind == "filesystem" and self.mount_id is None:
            raise ValueError(f"{self.path}: which mount it is must be known before it is cleaned")
        if self.identity is None and self.recheck is _nothing_more:
            raise ValueError(f"{self.path}: neither an identity nor a recheck to know it by")


class Held:
    """The open volume. Usable from worker threads that may be left behind in a hanging call.

    The descriptor is closed when `close` was called *and* no call uses it any more. So a write that
    hangs in the kernel keeps the device exclusively ours until it returns: nobody can mount a
    device on which it may still land, and the next cleaning is told that it is in use.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.fd = -1
        #: Bytes of a block device; 0 for a filesystem.
        self.size_bytes = 0
        #: Holds the lock of a block device (host.locks); -1 for a filesystem, where `fd` has it.
        #: A program that works on the device must inherit it.
        self.lock_fd = -1
        self._users = Users(self._close)

    @property
    def own_path(self) -> str:
        """A path to the open volume itself, for us and programs we start.

        It stays right even if the volume's own path leads elsewhere by now.
        """
        inside = "/." if self.target.kind == "filesystem" else ""
        return f"/proc/{os.getpid()}/fd/{self.fd}{inside}"

    @property
    def closing(self) -> bool:
        """Whether nobody waits for the result any more: then a long call in a thread should end."""
        return self._users.given_up

    def use(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `fn`; the descriptor stays open meanwhile. Raises CleaningRefused if given up."""
        if not self._users.enter():
            raise CleaningRefused(f"{self.target.path}: given up before it began")
        try:
            return fn(*args, **kwargs)
        finally:
            self._users.leave()

    def open(self) -> None:
        """Open and check; blocking, for a worker thread.

        Raises CleaningRefused, having touched nothing.
        """
        try:
            self.use(self._open_block if self.target.kind == "block" else self._open_directory)
            self.use(self.target.recheck)
        except OSError as error:
            raise CleaningRefused(f"{self.target.path}: {error.strerror or error}") from error

    def loosen(self) -> None:
        """Let others open the device exclusively from now on; we keep it open and pinned."""
        plain = os.open(self.own_path, os.O_RDONLY | os.O_CLOEXEC)
        self.fd, exclusive = plain, self.fd
        os.close(exclusive)

    def check_path(self) -> None:
        """Raises CleaningRefused unless the path still leads to the open device."""
        path = self.target.path
        try:
            found = os.stat(path)
        except OSError as error:
            raise CleaningRefused(f"{path}: {error.strerror}") from error
        if not stat.S_ISBLK(found.st_mode) or found.st_rdev != os.fstat(self.fd).st_rdev:
            raise CleaningRefused(f"{path} has come to lead somewhere else")

    def size_now(self) -> int:
        """Bytes of the open device at this moment, whatever they were when it was opened."""
        return size_bytes(self.fd)

    def close(self) -> None:
        """Close it, now or when the last call returns. May block while the kernel flushes."""
        self._users.give_up()

    def _close(self) -> None:
        for fd in (self.fd, self.lock_fd):
            if fd >= 0:
                os.close(fd)
        self.fd = self.lock_fd = -1

    def _open_block(self) -> None:
        path = self.target.path
        try:
            self.fd = exclusive_open(path, device=self.target.device)
        except (InUse, NotABlockDevice) as error:
            raise CleaningRefused(str(error)) from error
        found = probe_block_device(self.own_path)
        self._compare(found.identity)
        if loops := loops_on(found.device):
            # A loop device does not claim the device below it.
            raise CleaningRefused(f"{path} is in use by {', '.join(loops)}")
        if found.size_bytes <= 0:
            raise CleaningRefused(f"{path} has no size: is there a medium in it?")
        lock_fd = lock_device(self.own_path)
        if lock_fd is None:
            raise CleaningRefused(f"{path} is being cleaned by another process")
        self.lock_fd = lock_fd
        self.size_bytes = found.size_bytes

    def _open_directory(self) -> None:
        path = self.target.path
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if not lock_directory(self.fd):
            raise CleaningRefused(f"{path} is being cleaned by another process")
        mount_id = mount_id_of(self.fd)
        if mount_id != self.target.mount_id or not _is_mount_root(self.fd, mount_id):
            raise CleaningRefused(
                f"{path} is no longer the mount {self.target.mount_id} that was planned"
            )
        mount = _mount_of_id(mount_id)
        number = device_number(os.fstat(self.fd).st_dev)
        if self.target.device not in (number, mount.device):
            raise CleaningRefused(f"{path} is now on device {number}, not {self.target.device}")
        try:
            filesystem = probe_filesystem(self.own_path, mount)
        except Changed as error:
            raise CleaningRefused(str(error)) from error
        self._compare(identity_of_mount(mount, filesystem))
        if filesystem.read_only:
            raise CleaningRefused(f"{path} is mounted read-only")

    def _compare(self, observed: Identity) -> None:
        if self.target.identity is None:
            return
        verdict, reason = unchanged(self.target.identity, observed)
        if verdict != "same":
            raise CleaningRefused(
                f"{self.target.path} is not the volume that was planned: {reason}"
            )


def _is_mount_root(fd: int, mount_id: int) -> bool:
    """Whether a directory is the root of its mount: then its parent lies in another mount."""
    with closed_after(
        os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    ) as parent:
        return mount_id_of(parent) != mount_id


def _mount_of_id(mount_id: int) -> Mount:
    for mount in read_mount_table():
        if mount.mount_id == mount_id:
            return mount
    raise CleaningRefused(f"the mount {mount_id} is gone")
