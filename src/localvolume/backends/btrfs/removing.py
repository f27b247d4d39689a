"""Delete a subvolume with all that a tenant made inside it, and wait until its space is free.

A tenant who still has it open may make others inside meanwhile, and limits may be set again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Sequence

from localvolume.backends.model import BackendFailed, NotThisVolume, Progress
from localvolume.host.btrfs import limits
from localvolume.host.btrfs.subvolumes import (
    delete_subvolume,
    is_listed,
    is_named,
    read_inside,
    subvolume_id,
    sync_and_clean,
)
from localvolume.host.filesystem.inodeflags import unlock, unlock_subvolume
from localvolume.host.mount.inuse import users_of
from localvolume.host.tree.beneath import LeadsOutside
from localvolume.host.tree.deletion import (
    DeletionIncomplete,
    DeletionStopped,
    NestedMount,
    delete_contents,
)
from localvolume.host.tree.trees import opened

_PASSES = 10
_READ_ONLY = frozenset({errno.EROFS, errno.EPERM})
_CHANGED = frozenset({errno.ENOENT, errno.ENOTEMPTY, errno.EDQUOT})


def remove_subvolume(
    fd: int,
    volume: int,
    identity: int,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
) -> Sequence[int]:
    """Delete the subvolume open as `volume`, and all inside it; returns the ids of all deleted.

    `fd` is a directory of the same filesystem that stays. Raises BackendFailed, OSError.
    """
    # The kernel would remove mounts of it, too, even while they are in use.
    if users := users_of(volume, os.readlink(f"/proc/self/fd/{volume}")):
        raise BackendFailed(f"it is in use: {users[0]}")
    deleted: list[int] = []
    for attempt in range(_PASSES):
        if stop is not None and stop.is_set():
            raise BackendFailed("stopped as asked; the rest is deleted later")
        if not is_named(fd, identity):
            return deleted
        # Inner before outer: the kernel deletes none that has another one inside.
        doomed = [identity, *read_inside(fd, identity)][::-1]
        # A full volume has no space left even to delete something in it.
        limits.lift(fd, doomed)
        if attempt:
            # Only root can make anything more in it, even with it open.
            with contextlib.suppress(OSError):
                os.fchmod(volume, 0)
        try:
            for one in doomed:
                delete_subvolume(fd, one)
                deleted.append(one)
        except OSError as error:
            if one != identity and error.errno in _READ_ONLY:
                # Its parent is read-only or immutable: emptying the whole volume unlocks all that.
                _empty(volume, stop or threading.Event(), progress)
            elif error.errno not in _CHANGED and not _unlocked(volume):
                raise BackendFailed(
                    f"subvolume {one} cannot be deleted: {error.strerror}"
                ) from error
    raise BackendFailed("somebody keeps making subvolumes inside it")


def _unlocked(volume: int) -> bool:
    """Whether it was immutable or append-only, as its tenant or that of its origin has made it."""
    unlock_subvolume(volume)
    return unlock(volume)


def take_away(directory: int, name: str) -> int | None:
    """Delete an empty subvolume that nobody was told of; returns its id, None if there is none.

    Raises NotThisVolume if it is no subvolume, BackendFailed if something is in it, OSError.
    """
    try:
        with opened(directory, name) as volume:
            identity = subvolume_id(volume)
        if identity is None:
            raise NotThisVolume(f"{name} is a directory and not a subvolume")
        # The kernel refuses this if anything is in it.
        os.rmdir(name, dir_fd=directory)
    except FileNotFoundError:
        return None
    except (NotADirectoryError, LeadsOutside) as error:
        raise NotThisVolume(f"{name} is not a subvolume") from error
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:
            raise BackendFailed(f"{name} is not empty: somebody has written to it") from error
        raise
    return identity


def _empty(volume: int, stop: threading.Event, progress: Progress | None) -> None:
    unlock_subvolume(volume)
    try:
        delete_contents(
            volume,
            stop=stop,
            progress=None if progress is None else lambda done: progress(done.files, done.bytes),
        )
    except (NestedMount, DeletionIncomplete, DeletionStopped) as error:
        raise BackendFailed(f"it cannot be emptied: {error}") from error


def wait_until_gone(
    fd: int, identities: Sequence[int], stop: threading.Event, seconds: float
) -> None:
    """Wait at most that long until the kernel has freed deleted subvolumes; forget their groups.

    The kernel does the rest later, and the groups go when the next volume is purged.
    """
    if identities:
        sync_and_clean(fd)
    deadline = time.monotonic() + seconds
    left = list(identities)
    while left and time.monotonic() < deadline and not stop.wait(0.02):
        # The kernel frees the last one last.
        while left and not is_listed(fd, left[-1]):
            left.pop()
    limits.forget(fd)


def take_copy_away(fd: int, directory: int, name: str) -> Sequence[int]:
    """Delete the copy of a subvolume that nobody was told of, with all its content.

    Returns the ids of what is deleted. `fd` is as in `remove_subvolume`. Raises NotThisVolume if
    it is no subvolume, BackendFailed, OSError.
    """
    try:
        with opened(directory, name) as volume:
            identity = subvolume_id(volume)
            if identity is None:
                raise NotThisVolume(f"{name} is a directory and not a subvolume")
            return remove_subvolume(fd, volume, identity)
    except FileNotFoundError:
        return []
    except (NotADirectoryError, LeadsOutside) as error:
        raise NotThisVolume(f"{name} is not a subvolume") from error
