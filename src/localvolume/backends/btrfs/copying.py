"""Copies of a subvolume: btrfs makes them at once, and they share their data until it is changed.

- A cut is one moment of the whole subvolume. btrfs writes out what is not on disk yet first, but
  passes over a file while it is being written to: of such a file, what was written before would be
  missing (seen with Linux 6.18). So everything is written out before.
- A snapshot is made writable and locked once it lies in its place: the kernel moves no read-only
  subvolume to another directory. Only root can reach it until then, and after.
- Simple quotas charge a volume for the data that its snapshots keep. Its user could then no longer
  overwrite it, so copies need full quotas.
- No two cuts are of one moment. Each ends the filesystem's transaction, so those that are asked for
  at once come one after the other (seen with Linux 6.18, in separate directories as well). What is
  written to several volumes in turn can be in a later one and not in an earlier one (seen, too). A
  frozen filesystem makes none, and Linux has no call (any more, since 5.7) that makes several in
  one transaction. So groups are refused.
- A subvolume that a tenant has made inside the volume would be left out: that is refused.
"""

from __future__ import annotations

import time
from typing import Final

from localvolume.backends.btrfs.removing import take_copy_away
from localvolume.backends.model import NEED_FOR_GROUPS, Impossible, Record
from localvolume.backends.pool import directories
from localvolume.host.btrfs.subvolumes import read_inside, snapshot_subvolume
from localvolume.host.filesystem.inodeflags import unlock
from localvolume.host.syscalls import syncfs
from localvolume.host.tree.beneath import LeadsOutside
from localvolume.host.tree.trees import opened

SIMPLE: Final = (
    "its btrfs has simple quotas, which charge a volume for what its snapshots keep: switch to full"
    " ones (btrfs quota disable, then btrfs quota enable)"
)

APART: Final = (
    "btrfs cuts each subvolume at a moment of its own, and none while it is frozen:"
    f" {NEED_FOR_GROUPS}"
)


def cut(
    fd: int, making: int, record: Record, origin: Record, identify: directories.Identify
) -> int:
    """Make the subvolume `record.name` in `making` with the content of `origin`, writable.

    `fd` is the pool's directory. Returns when that was, in nanoseconds. Raises NotThisVolume,
    Impossible, BackendFailed, OSError; what was made then is left there.
    """
    # What a crash left belongs to nobody yet, and nobody knows when it was cut.
    take_copy_away(fd, making, record.name)
    with directories.in_place(fd, origin, identify) as source:
        _refuse_inner(fd, origin)
        if not origin.snapshot_of:
            syncfs(source)
        snapshot_subvolume(making, record.name, source)
        at = time.time_ns()
        # Its tenant may have made one until the last moment.
        _refuse_inner(fd, origin)
    with opened(making, record.name) as volume:
        # Its tenant may have made the root immutable or append-only: so it could not be moved.
        unlock(volume)
    return at


def is_cut(making: int, record: Record, identify: directories.Identify) -> bool:
    """Whether the copy of the record lies there: it was complete before its id was recorded."""
    if not record.inode:
        return False
    try:
        with opened(making, record.name) as volume:
            return identify(volume) == record.inode
    except (FileNotFoundError, NotADirectoryError, LeadsOutside):
        return False


def _refuse_inner(fd: int, origin: Record) -> None:
    if next(read_inside(fd, origin.inode), None) is not None:
        raise Impossible(
            f"{origin.name} has subvolumes or snapshots inside it, which a copy would lack: make"
            " directories of them, or delete them"
        )
