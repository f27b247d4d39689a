"""The demo's disks: made from sparse files in one directory, in view once they are mounted.

As root: an ext4 filesystem, a bind mount of a directory on another one, a raw device, a pool, and a
second pool on a btrfs where the machine has that, all on loop devices that detach themselves when
the last process or mount that uses them is gone.
Without root, or where the machine has no loop devices, no mkfs.ext4 or no wipefs (by which the
agent knows whether a device is empty): tmpfs in their place, and no device.
"""

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass

from localvolume.config.provisioner import CSI_DRIVER
from localvolume.host.process import commands
from localvolume_lab.demo import kernel
from localvolume_lab.demo.stage import Stage

MIB = 1 << 20
DISK_BYTES = 64 * MIB
ARRAY_BYTES = 128 * MIB
DEVICE_BYTES = 48 * MIB
POOL_BYTES = 96 * MIB
# The least that mkfs.btrfs takes is 109 MiB.
COPIES_BYTES = 256 * MIB

# sun_path of unix(7) has 108 bytes, the last one a zero.
_SOCKET_PATH = 107

_UNMOUNT_SECONDS = 30.0
_DETACH_SECONDS = 30.0


def search_path() -> str:
    """PATH, and where the programs for disks are: root's shell after `su` leaves sbin out."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Disk:
    """One volume to be: `appear` and `vanish` do what an administrator would.

    `path` is its entry in the discovery directory; `appearing` and `vanishing` are the commands.
    """

    path: str
    what: str
    block: bool
    appear: Callable[[], None]
    vanish: Callable[[], None]
    appearing: str
    vanishing: str


class Machine:
    """Make it with `prepare`, and `remove` it whatever happens; all lies below `directory`."""

    def __init__(self, directory: str, stage: Stage) -> None:
        self.files = f"{directory}/files"
        self.raw = f"{directory}/raw"
        self.pool = f"{directory}/pool"
        self.copies = f"{directory}/shared"
        """A pool whose volumes share data, where `no_copies` is empty."""
        self.kubelet = f"{directory}/kubelet"
        """The directory of a kubelet that is not there."""
        self._images = f"{directory}/images"
        self._array = f"{directory}/array"
        self._directories = (
            self.files,
            self.raw,
            self.pool,
            self.copies,
            self.kubelet,
            self._images,
            self._array,
        )
        self._stage = stage
        self._loops: dict[str, int] = {}
        self._mounted: list[str] = []
        self.disks: list[Disk] = []
        self.without = ""
        """Why there are no disks but tmpfs, "" where there are."""
        self.no_copies = ""
        """Why no volume can be snapshotted here, "" where one can."""

    async def prepare(self) -> None:
        """Make the disks, all but their place in the discovery directories. Raises OSError."""
        self._make_directories()
        self.without = self._obstacle()
        if not self.without:
            try:
                await self._make_real()
                self.no_copies = await self._make_copies()
                return
            except (OSError, commands.CommandTimedOut) as error:
                self.without = f"this kernel or container gives no loop device with ext4 ({error})"
                self.remove()
                self._make_directories()
        self.no_copies = "they need a filesystem that shares data, and root to make one"
        self._make_tmpfs()

    def _make_directories(self) -> None:
        for directory in self._directories:
            os.mkdir(directory)
        for name in ("plugins", "plugins_registry", "pods"):
            os.mkdir(f"{self.kubelet}/{name}")

    def _obstacle(self) -> str:
        if not self._stage.root:
            return "loop devices and disk filesystems need root"
        for program, package in (("mkfs.ext4", "e2fsprogs"), ("wipefs", "util-linux")):
            if self._program(program) is None:
                return f"there is no {program} (package {package})"
        return ""

    @staticmethod
    def _program(name: str) -> str | None:
        return shutil.which(name, path=search_path())

    # --- as root -------------------------------------------------------------------------------

    async def _make_real(self) -> None:
        disk = await self._ext4("disk", DISK_BYTES)
        array = await self._ext4("array", ARRAY_BYTES)
        device = self._loop("device", DEVICE_BYTES)
        pool = await self._ext4("pool", POOL_BYTES)
        self._mount(array, self._array, "ext4")
        self._mount(pool, self.pool, "ext4")
        self.disks = [
            self._mountable("disk-1", "an ext4 filesystem", disk, "ext4"),
            self._bindable("array-1", "a bind mount"),
            self._linkable("device-1", "a raw device", device),
        ]

    async def _ext4(self, name: str, size: int) -> str:
        device = self._loop(name, size)
        # Without discard: the file is sparse already. A lazy kernel thread is not wanted either.
        options = ("-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0")
        argv = (self._program("mkfs.ext4") or "mkfs.ext4", "-q", "-F", *options, device)
        done = await commands.run(argv, timeout=30.0)
        if done.returncode != 0:
            raise OSError(errno.EIO, f"mkfs.ext4: {done.stderr.strip() or done.returncode}")
        return device

    async def _make_copies(self) -> str:
        """The pool whose volumes can be snapshotted; why there is none, "" where it is made."""
        program = self._program("mkfs.btrfs")
        if program is None:
            return "there is no mkfs.btrfs (package btrfs-progs)"
        if len(f"{self.kubelet}/plugins_registry/{CSI_DRIVER}-reg.sock") > _SOCKET_PATH:
            return "the path of the temporary directory is too long for a socket's"
        try:
            device = self._loop("shared", COPIES_BYTES)
            done = await commands.run((program, "-q", "-K", device), timeout=30.0)
            if done.returncode != 0:
                return f"mkfs.btrfs: {done.stderr.strip() or done.returncode}"
            self._mount(device, self.copies, "btrfs")
        except (OSError, commands.CommandTimedOut) as error:
            return f"this kernel or container mounts no btrfs ({error})"
        return ""

    def _loop(self, name: str, size: int) -> str:
        path = f"{self._images}/{name}"
        with open(path, "xb") as file:
            file.truncate(size)
        descriptor, device = kernel.attach_loop(path)
        self._loops[device] = descriptor
        return device

    # --- without -------------------------------------------------------------------------------

    def _make_tmpfs(self) -> None:
        self._mount("tmpfs", self._array, "tmpfs", f"size={ARRAY_BYTES},mode=755")
        self._mount("tmpfs", self.pool, "tmpfs", f"size={POOL_BYTES},mode=755")
        size = f"size={DISK_BYTES},mode=755"
        self.disks = [
            self._mountable("disk-1", "a tmpfs", "tmpfs", "tmpfs", size),
            self._bindable("array-1", "a bind mount"),
        ]

    # --- what an administrator does ------------------------------------------------------------

    def _mountable(self, name: str, what: str, source: str, fs: str, options: str = "") -> Disk:
        path = f"{self.files}/{name}"
        os.mkdir(path)
        words = f"mount -t {fs} {f'-o {options} ' if options else ''}{source} {path}"
        return self._disk(path, what, lambda: self._mount(source, path, fs, options), words)

    def _bindable(self, name: str, what: str) -> Disk:
        source, path = f"{self._array}/{name}", f"{self.files}/{name}"
        os.mkdir(source)
        os.mkdir(path)
        words = f"mount --bind {source} {path}"

        def appear() -> None:
            kernel.mount(source, path, flags=kernel.MS_BIND)
            self._mounted.append(path)

        return self._disk(path, what, appear, words)

    def _disk(self, path: str, what: str, appear: Callable[[], None], words: str) -> Disk:
        return Disk(path, what, False, appear, lambda: self._unmount(path), words, f"umount {path}")

    def _linkable(self, name: str, what: str, device: str) -> Disk:
        path = f"{self.raw}/{name}"
        return Disk(
            path,
            what,
            True,
            lambda: os.symlink(device, path),
            lambda: os.unlink(path),
            f"ln -s {device} {path}",
            f"rm {path}",
        )

    def _mount(self, source: str, path: str, fs_type: str, options: str = "") -> None:
        kernel.mount(source, path, fs_type, options=options)
        self._mounted.append(path)

    def _unmount(self, path: str) -> None:
        """Raises OSError where it stays in use."""
        deadline = time.monotonic() + _UNMOUNT_SECONDS
        while True:
            try:
                kernel.unmount(path)
                break
            except OSError as error:
                # The agent may be looking at it at this very moment.
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        self._mounted.remove(path)

    # --- the end -------------------------------------------------------------------------------

    def remove(self) -> list[str]:
        """Unmount and detach everything; returns what stayed, in words. May be called again."""
        for path in reversed(self._mounted[:]):
            try:
                self._unmount(path)
            except OSError:
                with contextlib.suppress(OSError):
                    kernel.unmount(path, lazy=True)
                self._mounted.remove(path)
        devices = {device: kernel.backing_file(device) for device in self._loops}
        for descriptor in self._loops.values():
            os.close(descriptor)
        self._loops.clear()
        for disk in self.disks:
            if disk.block:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(disk.path)
        for directory in self._directories:
            # What is mounted is gone from them: these are our own files.
            shutil.rmtree(directory, ignore_errors=True)
        return [
            f"the loop device {device}"
            for device, file in devices.items()
            if not _gone(device, file)
        ]


def _gone(device: str, file: str | None) -> bool:
    """Wait until a loop device let go of a file: the kernel does it a moment after the last use."""
    deadline = time.monotonic() + _DETACH_SECONDS
    while file is not None and kernel.backing_file(device) == file:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
