"""Whether content can be overwritten in a pool: only if its filesystem writes in place."""

from __future__ import annotations

from typing import Final

from localvolume.backends.model import Impossible, Record
from localvolume.host.syscalls import EXT_MAGIC, TMPFS_MAGIC, XFS_MAGIC, fstatfs

# All others are taken to write elsewhere (btrfs, zfs, bcachefs, f2fs) until they are known.
_IN_PLACE: Final = frozenset({EXT_MAGIC, XFS_MAGIC, TMPFS_MAGIC})


def can_overwrite(pool: int) -> bool:
    """Whether the pool's filesystem writes new data over the old; raises OSError."""
    return fstatfs(pool).magic in _IN_PLACE


def check_overwriting(pool: int, record: Record) -> None:
    """Raise Impossible if the record demands overwriting and this filesystem cannot; OSError."""
    if record.overwrite and not can_overwrite(pool):
        raise Impossible(
            "content cannot be overwritten here: ext4 and xfs write new data over the old, btrfs"
            " and others elsewhere"
        )
