"""Empty a directory: fast, whatever is in it, and touching nothing that is not in it.

What makes it safe against a tenant who still has the volume open, or who prepared it:
- every step is relative to a descriptor, and opens through ``beneath``: a directory that becomes a
  symbolic link is never entered, nor is another mount, not even one of the same filesystem;
- removing is by name in a directory that is held open, so it cannot reach anything elsewhere;
- nothing but directories is ever opened, except files to clear the immutable flag.
"""

import os
import threading
from collections.abc import Callable

from localvolume.host.filesystem.inodeflags import strip_attributes, unlock
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.syscalls import closed_after, syncfs
from localvolume.host.tree.emptying import Bounds, Emptying
from localvolume.host.tree.removal import (
    DIRECTORY_FLAGS,
    Deleted,
    DeletionIncomplete,
    DeletionStopped,
    Directory,
    NestedMount,
)

__all__ = [
    "Deleted",
    "DeletionIncomplete",
    "DeletionStopped",
    "NestedMount",
    "delete_contents",
]


def delete_contents(
    directory_fd: int,
    *,
    progress: Callable[[Deleted], None] | None = None,
    stop: threading.Event | None = None,
    workers: int = 4,
    unlink: Callable[..., None] | None = None,
    durable: bool = True,
    bounds: Bounds | None = None,
) -> Deleted:
    """Remove everything inside an open directory, and wait until that is on disk.

    The directory itself stays, with its mode and owner but without ``user.*`` attributes, access
    lists and the immutable flag; so does, on ext*, its ``lost+found``, emptied. ``progress`` is
    called in this thread about three times a second. Blocks; a call with a deadline belongs in a
    worker, and setting ``stop`` ends it within milliseconds of the disk's next answer. ``unlink``
    removes each name that is no directory: called as os.unlink is, in several threads. Without
    ``durable`` nothing waits for the disk in the end. ``bounds``: of what it takes at once.

    Raises ``NestedMount`` (before anything is removed, if it was mounted before),
    ``DeletionStopped``, ``DeletionIncomplete``, OSError.
    """
    # Our own: reading moves the position in it, and it may be open with O_PATH alone.
    with closed_after(os.open(".", DIRECTORY_FLAGS, dir_fd=directory_fd)) as fd:
        top = Directory(os.readlink(f"/proc/self/fd/{fd}"), None, stays=True)
        top.fd = fd
        _refuse_nested_mounts(top.name)
        if os.fstatvfs(fd).f_flag & os.ST_RDONLY:
            raise DeletionIncomplete(["the filesystem is mounted read-only"], Deleted())
        try:
            unlock(fd)
            strip_attributes(fd)
        except OSError as error:
            reason = f"the directory's own flags and attributes: {error.strerror}"
            raise DeletionIncomplete([reason], Deleted()) from error
        deleted = Emptying(top, stop or threading.Event(), unlink, bounds).run(workers, progress)
        if not durable:
            return deleted
        try:
            # Else a power cut may bring files back, and the volume is somebody else's by then.
            syncfs(fd)
        except OSError as error:
            raise DeletionIncomplete([f"writing to disk: {error.strerror}"], deleted) from error
        return deleted


def _refuse_nested_mounts(base: str) -> None:
    inside = base.rstrip("/") + "/"
    # Also those hidden below other mounts now.
    for mount in read_mount_table():
        if mount.mount_point.startswith(inside):
            raise NestedMount(mount.mount_point)
