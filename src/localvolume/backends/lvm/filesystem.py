"""The filesystem of a logical volume: made over the whole device, checked, grown, measured.

Every function takes the node and the `major:minor` that it must have: the path may lead elsewhere
by now. All raise BackendFailed (Impossible) and OSError; each may be repeated after a crash.
"""

import os
from collections.abc import Sequence
from typing import Final

from localvolume.backends import fstools
from localvolume.backends.fstools import (
    BLOCK,
    CHECKING_SECONDS,
    MAKING_SECONDS,
    MIB,
    XFS_LEAST,
    command,
    ext_super,
    growth_told,
    mounted_root,
    mounted_usage,
    mounted_xfs,
    unmounted_ext4_usage,
)
from localvolume.backends.model import BackendFailed, Impossible, Usage
from localvolume.host.block import blockdev
from localvolume.host.filesystem.growing import grow_ext4, grow_xfs, xfs_geometry
from localvolume.host.mount.detached import detached_mount
from localvolume.host.mount.mounts import MountTable
from localvolume.host.process.commandsync import Run
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.entries import device_number

FILESYSTEMS: Final = ("ext4", "xfs")
# A smaller ext4 has no room for its own tables and any data.
_EXT4_LEAST: Final = MIB
# mke2fs refuses a journal that takes half of the filesystem, and the smallest one has 4 MiB.
_EXT4_LEAST_WITH_JOURNAL: Final = 9 * MIB
# An xfs leaves a last allocation group with fewer blocks than this unused.
_XFS_LEAST_IN_GROUP: Final = 64
# The UUID of an xfs, in its superblock at the very beginning: its length and its place.
_XFS_UUID: Final = (16, 32)


def check_fs(fs: str, size_bytes: int) -> None:
    """Raise Impossible if no such filesystem can be made on that many bytes."""
    if fs not in FILESYSTEMS:
        raise Impossible(f"logical volumes hold ext4 or xfs, not {fs!r}")
    if fs == "xfs" and size_bytes < XFS_LEAST:
        raise Impossible("xfs volumes have at least 300Mi: choose ext4 for smaller ones")
    if size_bytes < _EXT4_LEAST:
        raise Impossible("a volume with a filesystem has at least 1Mi")


def make_filesystem(
    run: Run,
    node: str,
    device: str,
    fs: str,
    *,
    options: Sequence[str] = (),
    mode: int | None = None,
    uid: int = 0,
    gid: int = 0,
) -> None:
    """Make a filesystem over all of the device, whatever it holds, unless it is in use.

    `options` are further arguments of mkfs. `mode`, `uid` and `gid` are the root directory's; None
    leaves it as mkfs makes it, 0755 and owned by root.
    """
    size = _size(node, device)
    check_fs(fs, size)
    if fs == "ext4":
        command(run, _mkfs_ext4(node, size, options, uid, gid), MAKING_SECONDS)
        if mode is not None:
            fstools.set_ext4_root_mode(run, node, mode, uid, gid)
        return
    argv = ["mkfs.xfs", "-q", "-f", "-K", *fstools.xfs_features(run, options), *options, node]
    command(run, argv, MAKING_SECONDS)
    if mode is not None:
        with mounted_xfs(node) as root:
            fstools.set_open_root(root, mode, uid, gid)


def _mkfs_ext4(node: str, size: int, options: Sequence[str], uid: int, gid: int) -> list[str]:
    # Only the last of several -E counts.
    extended, others, following = [f"nodiscard,root_owner={uid}:{gid}"], [], False
    for word in options:
        if following or (word.startswith("-E") and word != "-E"):
            extended.append(word if following else word[2:])
            following = False
        elif word == "-E":
            following = True
        else:
            others.append(word)
    ratio, journal_mib = fstools.ext4_shape(size)
    if size < _EXT4_LEAST_WITH_JOURNAL:
        journal_mib = 0
    argv = fstools.ext4_command(node, ratio, journal_mib, ",".join(extended))
    return [*argv[:-1], *others, node]


def check_filesystem(run: Run, node: str, device: str, fs: str) -> None:
    """Repair what a crash left before it is mounted, for example an ext4 that was not unmounted.

    A filesystem in use, or clean, is left alone. An xfs repairs itself when it is mounted.
    """
    if fs != "ext4":
        return
    fd = _unused(node, device)
    if fd is None:
        return
    os.close(fd)
    # Exit status 1: there were errors, and they are corrected.
    command(run, ["e2fsck", "-p", node], CHECKING_SECONDS, good=(0, 1))


def renew_identity(run: Run, node: str, device: str, fs: str) -> None:
    """Give the filesystem of a copy, which nobody uses yet, a UUID of its own.

    What its origin had begun to write is completed before, as after a crash.
    """
    _size(node, device)
    if fs == "ext4":
        # tune2fs demands a full check. Exit status 1: there were errors, and they are corrected.
        command(run, ["e2fsck", "-f", "-p", node], CHECKING_SECONDS, good=(0, 1))
        command(run, ["tune2fs", "-U", "random", node], CHECKING_SECONDS)
    elif fs == "xfs":
        # Only the kernel replays a log, and by default it mounts no UUID twice.
        with mounted_xfs(node, ("nouuid",)):
            pass
        before = _xfs_uuid(node)
        # What xfs_admin does, which is a script for a shell.
        argv = ["xfs_db", "-x", "-p", "xfs_admin", "-c", "uuid generate", node]
        done = command(run, argv, CHECKING_SECONDS)
        if _xfs_uuid(node) == before:
            # Its exit status is always 0.
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise BackendFailed(f"xfs_db: the UUID stays: {said[-1] if said else ''}")
    else:
        raise Impossible(f"logical volumes hold ext4 or xfs, not {fs!r}")


def _xfs_uuid(node: str) -> bytes:
    with closed_after(os.open(node, os.O_RDONLY | os.O_CLOEXEC)) as fd:
        # What xfs_db wrote may not be what is cached here.
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return os.pread(fd, *_XFS_UUID)


def grow_filesystem(run: Run, node: str, device: str, fs: str) -> None:
    """Grow it to all of its device, mounted or not; one that has all already is left alone."""
    size = _size(node, device, used=True)
    if fs == "ext4":
        _grow_ext4(run, node, device, size)
    elif fs == "xfs":
        with mounted_root(device) as root:
            if root is not None:
                _grow_xfs(root, size)
                return
        # If it is mounted where we do not see it, this mount is of the same filesystem.
        with mounted_xfs(node) as root:
            _grow_xfs(root, size)
    else:
        raise Impossible(f"logical volumes hold ext4 or xfs, not {fs!r}")


def _grow_ext4(run: Run, node: str, device: str, size: int) -> None:
    present = ext_super(node)
    blocks = present.fitting(size // present.block_size)
    if blocks <= present.blocks:
        return
    if not fstools.may_resize_mounted():
        # A killed resize2fs leaves a filesystem that nobody repairs.
        raise BackendFailed("growing an ext4 takes CAP_SYS_RESOURCE: give it to the agent")
    with mounted_root(device) as root:
        if root is not None:
            with growth_told():
                grow_ext4(root, blocks)
        else:
            check_filesystem(run, node, device, "ext4")
            with growth_told(), detached_mount(node, "ext4") as hidden:
                grow_ext4(hidden, blocks)
    if ext_super(node).blocks < blocks:
        raise BackendFailed("the ext4 has not become as large as its volume")


def _grow_xfs(root: int, size: int) -> None:
    geometry = xfs_geometry(root)
    blocks = size // geometry.block_size
    if blocks - geometry.blocks < _XFS_LEAST_IN_GROUP:
        return
    with growth_told():
        grow_xfs(root, geometry, blocks)
    if blocks - xfs_geometry(root).blocks >= _XFS_LEAST_IN_GROUP:
        raise BackendFailed("the xfs has not become as large as its volume")


def usage_of(node: str, device: str, fs: str, mounts: MountTable) -> Usage | None:
    """What the filesystem holds; None if unknown."""
    usage = mounted_usage(mounts, device)
    if usage is not None:
        return usage
    # The superblock of an unmounted xfs may be out of date.
    return unmounted_ext4_usage(node) if fs == "ext4" else None


def was_never_mounted(node: str, device: str, fs: str) -> bool:
    """Whether it is certain that nobody ever mounted it; False if unknown."""
    if fs != "ext4":
        return False
    fd = _unused(node, device)
    if fd is None:
        return False
    with closed_after(fd):
        found = ext_super(fd)
    return not found.mounted_at and not found.mount_count


def _size(node: str, device: str, *, used: bool = False) -> int:
    """Bytes of the device; raises BackendFailed if it is another one, or in use unless `used`."""
    fd = _unused(node, device)
    if fd is None:
        if not used:
            raise BackendFailed(f"{node} is in use")
        fd = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
    with closed_after(fd):
        if device_number(os.fstat(fd).st_rdev) != device:
            raise BackendFailed(f"{node} is another device now, not {device}")
        return blockdev.size_bytes(fd) // BLOCK * BLOCK


def _unused(node: str, device: str) -> int | None:
    """The device, opened exclusively; None if it is in use."""
    try:
        return blockdev.exclusive_open(node, write=False, device=device)
    except blockdev.InUse:
        return None
    except blockdev.NotABlockDevice as error:
        raise BackendFailed(str(error)) from error
