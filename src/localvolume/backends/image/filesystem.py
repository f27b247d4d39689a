"""The filesystem inside an image: made with room for the promised size, and measured.

The image is larger than what was asked for, by what the filesystem keeps for itself. Room for data
is at least the promise and, from 16 MiB up, at most 1 % more. An ext4 is measured by its superblock
without a mount, so that it stays provable that nobody ever mounted it; an xfs is mounted where
nobody sees it.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Literal

from localvolume.backends.fstools import (
    BLOCK,
    MAKING_SECONDS,
    MIB,
    XFS_LEAST,
    command,
    ext4_command,
    ext4_shape,
    ext_super,
    mounted_xfs,
    set_ext4_root_mode,
    set_open_root,
    xfs_features,
)
from localvolume.backends.model import BackendFailed, Impossible, Record
from localvolume.host.filesystem.extsuper import planned
from localvolume.host.filesystem.growing import XfsGeometry
from localvolume.host.loop.attach import Loop
from localvolume.host.process.commandsync import Run

Content = Literal["ext4", "xfs", "raw"]
Borrow = Callable[[int], AbstractContextManager[Loop]]
"""Attaches an open image to a loop device for a while."""

_ATTEMPTS: Final = 6


def content_of(record: Record) -> Content:
    """Say what the image holds. Raises Impossible for a filesystem that is not made here."""
    if record.volume_mode == "Block":
        return "raw"
    if record.fs_type in ("", "ext4"):
        return "ext4"
    if record.fs_type == "xfs":
        return "xfs"
    raise Impossible(f"images hold ext4 or xfs, not {record.fs_type}")


def check(record: Record) -> None:
    """Raise Impossible if no such image can ever be made."""
    if content_of(record) == "xfs" and record.size_bytes < XFS_LEAST:
        raise Impossible("xfs volumes have at least 300Mi: choose ext4 for smaller ones")
    if record.size_bytes <= 0:
        raise Impossible("a volume has at least one byte")


def sector_size(record: Record) -> int:
    """The loop device's logical sector size: the content of a raw volume depends on it for ever.

    512 works for everybody, on every disk below (without direct I/O on a disk of 4096).
    Filesystems are made for 4096, which works on every disk with direct I/O.
    """
    return 512 if record.volume_mode == "Block" else BLOCK


def raw_bytes(size_bytes: int) -> int:
    """How large the image of a raw volume is."""
    return -(-size_bytes // BLOCK) * BLOCK


def wanted_blocks(size_bytes: int) -> int:
    """How many blocks of data a filesystem gets: a few more, for the maps of large files."""
    blocks = -(-size_bytes // BLOCK)
    return blocks + max(1, blocks // 500)


def make_content(run: Run, fd: int, record: Record, borrow: Borrow) -> None:
    """Give the new, empty, open image its size and content.

    Raises BackendFailed (NoSpace, Impossible) and OSError.
    """
    content = content_of(record)
    if content == "raw":
        os.ftruncate(fd, raw_bytes(record.size_bytes))
    elif content == "ext4":
        _make_ext4(run, fd, record)
    else:
        _make_xfs(run, fd, record, borrow)


def _make_ext4(run: Run, fd: int, record: Record) -> None:
    wanted = wanted_blocks(record.size_bytes)
    ratio, mib = ext4_shape(record.size_bytes)
    # The file is new, so it reads as zeros: nothing needs to be wiped.
    extended = f"lazy_itable_init=0,lazy_journal_init=1,root_owner={record.uid}:{record.gid}"
    blocks = _first_guess(wanted, ratio, mib)
    for _ in range(_ATTEMPTS):
        _empty(fd, blocks * BLOCK)
        command(run, ext4_command(path_of(fd), ratio, mib, extended), MAKING_SECONDS)
        made = ext_super(fd)
        if _fits(made.available, record.size_bytes):
            break
        # Exact for the present geometry; the first directories may differ by a block or two.
        better = made.blocks_for(wanted)
        blocks = better if better != blocks else blocks + wanted - made.available
    else:
        raise BackendFailed(f"no ext4 filesystem with {record.size_bytes} bytes of room came out")
    set_ext4_root_mode(run, path_of(fd), record.mode, record.uid, record.gid)


def _first_guess(wanted: int, ratio: int, journal_mib: int) -> int:
    """How many blocks mkfs.ext4 will need, to be measured and corrected."""
    blocks = wanted
    # With more blocks there are more inodes, which take blocks in turn.
    for _ in range(3):
        blocks = planned(blocks, ratio, journal_mib * MIB // BLOCK).blocks_for(wanted)
    return blocks


def _fits(available: int, size_bytes: int) -> bool:
    """Whether that many blocks are enough for the promise, and at most 1 % (or 3 blocks) more."""
    least = -(-size_bytes // BLOCK)
    return least <= available <= least + max(least // 100, 3)


def _make_xfs(run: Run, fd: int, record: Record, borrow: Borrow) -> None:
    wanted = wanted_blocks(record.size_bytes)
    # The smallest log has 64 MiB, and that of a large xfs 1/2048 of its size.
    guess = XfsGeometry(BLOCK, 0, max(64 * MIB // BLOCK, wanted // 2048), 4, 25)
    blocks = guess.blocks_for(wanted)
    argv = ["mkfs.xfs", "-q", "-f", "-K", "-s", f"size={BLOCK}", "-b", f"size={BLOCK}"]
    argv += xfs_features(run)
    for _ in range(_ATTEMPTS):
        _empty(fd, blocks * BLOCK)
        command(run, [*argv, path_of(fd)], MAKING_SECONDS)
        with borrow(fd) as loop, mounted_xfs(loop.node) as root:
            found = os.fstatvfs(root)
            available = found.f_bavail * found.f_frsize // BLOCK
            if _fits(available, record.size_bytes):
                set_open_root(root, record.mode, record.uid, record.gid)
                return
        blocks += wanted - available
    raise BackendFailed(f"no xfs filesystem with {record.size_bytes} bytes of room came out")


def _empty(fd: int, size: int) -> None:
    os.ftruncate(fd, 0)
    os.ftruncate(fd, size)


def path_of(fd: int) -> str:
    """A path to the open file for commands: the file's own may lead elsewhere by then."""
    return f"/proc/{os.getpid()}/fd/{fd}"
