"""Whether content can be overwritten in a pool: only where its filesystem writes in place."""

from __future__ import annotations

from typing import Final

from localvolume.backends.model import Impossible, Record
from localvolume.host.syscalls import EXT_MAGIC, TMPFS_MAGIC, XFS_MAGIC, fstatfs

# All others count as those that write elsewhere (btrfs, zfs, bcachefs, f2fs) until they are known.
_IN_PLACE: Final = frozenset({EXT_MAGIC, XFS_MAGIC, TMPFS_MAGIC})


def can_overwrite(pool: int) -> bool:
    """Whether new data goes over the old in the pool's filesystem; raises OSError."""
    return fstatfs(pool).magic in _IN_PLACE


def check_overwriting(pool: int, record: Record) -> None:
    """Raise Impossible where the record demands what this filesystem cannot do; OSError."""
    if record.overwrite and not can_overwrite(pool):
        raise Impossible(
            "content cannot be overwritten here: ext4 and xfs write new data over the old, btrfs"
            " and others elsewhere"
        )
