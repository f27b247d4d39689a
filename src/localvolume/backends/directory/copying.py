"""Clone a directory that nobody uses: each file shares its blocks with its origin's.

There is no moment at which all files of a directory in use could be cloned. So nobody may use it
meanwhile, and there are no snapshots, which are asked for while volumes are in use.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from typing import Final

from localvolume.backends.model import BackendFailed, Busy, Impossible, Record
from localvolume.host.filesystem import reflink
from localvolume.host.mount.inuse import users_of
from localvolume.host.syscalls import XFS_MAGIC, fstatfs, syncfs
from localvolume.host.tree.cloning import TooLarge, clone_tree

NO_SNAPSHOTS: Final = (
    "a directory has no content of one moment: use the backend btrfs, or image on xfs or btrfs"
)
NO_CLONES: Final = (
    f"{NO_SNAPSHOTS}. Directories that nobody uses are cloned on an xfs made with reflink=1"
)


@dataclass(eq=False)
class Clones:
    """Clones directories in pools; remembers which filesystems can."""

    _can: dict[int, bool] = field(default_factory=dict)

    def why_none(self, pool: int) -> str:
        """Why no directory can be cloned in this pool, "" if they can."""
        if fstatfs(pool).magic != XFS_MAGIC:
            return NO_CLONES
        device = os.fstat(pool).st_dev
        if device not in self._can:
            try:
                self._can[device] = reflink.can_clone(pool)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    return ""  # not for want of room: that may come, and until then a clone says so
                return f"it is not known whether files can share blocks: {error.strerror}"
        return "" if self._can[device] else NO_CLONES

    def fill(self, made: int, source: int, path: str, origin: Record) -> None:
        """Clone the open directory of a volume, at that path, into another one that is empty.

        Raises Busy while it is in use, Impossible, BackendFailed, OSError.
        """
        _check_unused(source, path, origin)
        try:
            clone_tree(source, made)
        except TooLarge as error:
            raise Impossible(
                f"{origin.name} cannot be cloned: {error}. Copy it in a pod"
            ) from error
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ETXTBSY):
                raise BackendFailed(f"{origin.name} cannot be cloned: {error}") from error
            raise
        # Whoever came meanwhile may have written to it.
        _check_unused(source, path, origin)
        syncfs(made)


def _check_unused(source: int, path: str, origin: Record) -> None:
    if users := users_of(source, path):
        raise Busy(
            f"{origin.name} is in use ({users[0]}), and a directory is only cloned while nobody"
            " uses it: end its pods"
        )
