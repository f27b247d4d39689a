"""What images and devices share in making, measuring and growing a filesystem."""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from localvolume.backends.model import BackendFailed, Busy, NoSpace, NotThisVolume, Usage
from localvolume.host.filesystem.extsuper import ExtSuper, read_root, read_super
from localvolume.host.filesystem.xfsprogs import VERSION_COMMAND, for_older_kernels
from localvolume.host.mount.detached import detached_mount
from localvolume.host.mount.mounts import MountTable, read_mount_table
from localvolume.host.process.commands import CommandMissing, CommandTimedOut, Finished
from localvolume.host.process.commandsync import Run
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.entries import device_number

BLOCK: Final = 4096
MIB: Final = 1 << 20
XFS_LEAST: Final = 300 * MIB
"""The smallest filesystem that mkfs.xfs makes."""

VERSION_SECONDS: Final = 30.0
MAKING_SECONDS: Final = 120.0
CHECKING_SECONDS: Final = 1800.0
"""Checking reads all tables of the filesystem."""

# Bytes per inode for volumes below 512 MiB, and for larger ones, as in mke2fs.conf.
_INODE_RATIOS = ((512 * MIB, 4096), (None, 16384))
# (Below this many MiB, MiB of journal); no journal if it would be larger than the data.
_JOURNALS = ((6, 0), (128, 4), (1024, 16), (2048, 32), (64 << 10, 64), (None, 128))
_CAP_SYS_RESOURCE = 24


def command(run: Run, argv: list[str], timeout: float, *, good: tuple[int, ...] = (0,)) -> Finished:
    """Run a host command; raises BackendFailed, with its last line of output, if it fails."""
    try:
        done = run(argv, timeout)
    except CommandMissing as error:
        raise BackendFailed(f"this agent's image lacks {error}") from error
    except CommandTimedOut as error:
        raise BackendFailed(str(error)) from error
    if done.returncode not in good:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        words = said[-1] if said else f"exit status {done.returncode}"
        kind = NoSpace if os.strerror(errno.ENOSPC) in done.stderr else BackendFailed
        raise kind(f"{argv[0]}: {words}")
    return done


def may_resize_mounted() -> bool:
    """Whether the kernel lets this thread resize a mounted ext4."""
    status = Path("/proc/thread-self/status").read_text(encoding="ascii", errors="replace")
    capabilities = int(status.split("CapEff:")[1].split()[0], 16)
    return bool(capabilities >> _CAP_SYS_RESOURCE & 1)


def ext4_shape(size_bytes: int) -> tuple[int, int]:
    """Bytes per inode, and MiB of journal (0: none), of an ext4 for that much data."""
    ratio = next(r for least, r in _INODE_RATIOS if least is None or size_bytes < least)
    journal = next(j for most, j in _JOURNALS if most is None or size_bytes < most * MIB)
    return ratio, journal


def ext4_command(path: str, ratio: int, journal_mib: int, extended: str) -> list[str]:
    """The mkfs.ext4 for an image or device."""
    journal = ["-J", f"size={journal_mib}"] if journal_mib else ["-O", "^has_journal"]
    argv = ["mkfs.ext4", "-q", "-F", "-b", str(BLOCK), "-I", "256", "-i", str(ratio), "-m", "0"]
    return [*argv, *journal, "-E", extended, path]


def xfs_features(run: Run, options: Sequence[str] = ()) -> list[str]:
    """Options for mkfs.xfs in addition to those that were asked for; raises BackendFailed."""
    version = command(run, list(VERSION_COMMAND), VERSION_SECONDS).stdout
    return for_older_kernels(version, options)


def ext_super(path: int | str) -> ExtSuper:
    """Read the superblock of an open image or device node; BackendFailed if it is no ext4."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if isinstance(path, str) else os.dup(path)
    with closed_after(fd):
        found = read_super(fd)
    if found is None:
        raise BackendFailed("there is no ext4 filesystem in it")
    return found


def set_ext4_root_mode(run: Run, path: str, mode: int, uid: int, gid: int) -> None:
    """Set the mode of an unmounted ext4's root directory; check it, and the owner that mkfs set."""
    # Without a mount: an ext4 that was never mounted is known to hold nothing of a tenant's.
    mode &= 0o7777
    request = f"set_inode_field <2> mode 0{0o40000 | mode:o}"
    command(run, ["debugfs", "-w", "-R", request, path], MAKING_SECONDS)
    # debugfs always exits with 0.
    with closed_after(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as fd:
        found = read_root(fd)
    if found != (mode, uid & 0xFFFFFFFF, gid & 0xFFFFFFFF):
        raise BackendFailed("debugfs did not set the owner and mode of the root directory")


def set_open_root(root: int, mode: int, uid: int, gid: int) -> None:
    """Set owner and mode of an open root directory. Raises OSError."""
    os.fchown(root, uid, gid)
    # After the owner: changing that clears setuid and setgid.
    os.fchmod(root, mode & 0o7777)


@contextmanager
def mounted_xfs(node: str, options: Sequence[str] = ()) -> Iterator[int]:
    """Mount the xfs on a device where nobody sees it; yields its root directory, open.

    `options` are the filesystem's own. Raises BackendFailed.
    """
    with ExitStack() as stack:
        try:
            root = stack.enter_context(detached_mount(node, "xfs", options))
        except OSError as error:
            hint = "; it takes Linux 5.2" if error.errno == errno.ENOSYS else ""
            raise BackendFailed(f"xfs cannot be mounted: {error.strerror}{hint}") from error
        yield root


@contextmanager
def growth_told() -> Iterator[None]:
    """Raise the protocol's errors if the kernel does not let a filesystem grow."""
    try:
        yield
    except PermissionError as error:
        raise Busy(
            "the kernel lets only processes with CAP_SYS_RESOURCE grow it while it is mounted: it"
            " grows once no pod uses it, or give the agent that capability"
        ) from error
    except OSError as error:
        raise BackendFailed(f"the filesystem does not grow: {error.strerror}") from error


# --- its mounts and its usage, read through a mount or from the filesystem itself ----------------


@contextmanager
def mounted_root(device: str) -> Iterator[int | None]:
    """Yield the open root of a mount of ``major:minor`` that we see; None if we see none.

    Raises OSError.
    """
    fd = _open_root(device)
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


def _open_root(device: str) -> int | None:
    for mount in read_mount_table().of_device(device):
        if mount.root != "/":
            continue
        try:
            fd = os.open(mount.mount_point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # unmounted meanwhile, or hidden: try another mount
        if device_number(os.fstat(fd).st_dev) == device:
            return fd
        os.close(fd)
    return None


def mounted_usage(table: MountTable, device: str) -> Usage | None:
    """What the filesystem on ``major:minor`` says that it holds; None if it is not mounted."""
    for mount in table.of_device(device):
        if (usage := _usage_at(mount.mount_point, device)) is not None:
            return usage
    return None


def _usage_at(point: str, device: str) -> Usage | None:
    try:
        fd = os.open(point, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    with closed_after(fd):
        if device_number(os.fstat(fd).st_dev) != device:
            return None  # something else is mounted over it
        found = os.fstatvfs(fd)
    return Usage(
        used_bytes=(found.f_blocks - found.f_bfree) * found.f_frsize,
        available_bytes=found.f_bavail * found.f_frsize,
        used_inodes=found.f_files - found.f_ffree,
        available_inodes=found.f_favail,
    )


def unmounted_ext4_usage(path: int | str) -> Usage | None:
    """What an unmounted ext4 holds; None if its superblock may be out of date.

    Raises OSError, and BackendFailed if it is no ext4.
    """
    found = ext_super(path)
    if not found.clean:
        return None
    return Usage(
        used_bytes=(found.blocks - found.overhead(found.blocks) - found.free) * found.block_size,
        available_bytes=found.available * found.block_size,
        used_inodes=found.inodes - found.inodes_free,
        available_inodes=found.inodes_free,
    )


def open_device(node: str, device: str) -> int:
    """The block device at that path, open by its path only; `device` is its number, "7:3".

    Raises NotThisVolume if another device lies there, OSError.
    """
    with ExitStack() as undo:
        fd = os.open(node, os.O_PATH | os.O_CLOEXEC)
        undo.callback(os.close, fd)
        found = os.fstat(fd)
        if not stat.S_ISBLK(found.st_mode) or device_number(found.st_rdev) != device:
            raise NotThisVolume(f"what lies at {node} is not the device {device}")
        undo.pop_all()
    return fd
