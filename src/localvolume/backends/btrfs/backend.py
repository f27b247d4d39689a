"""The btrfs backend: each volume is a subvolume whose quota group has the size as its limit.

- `Record.inode` is the subvolume's id: every subvolume's inode number is 256, and ids are never
  reused.
- The limit counts referenced bytes, trees included: the largest file is some 16 KiB smaller than
  the size. Beyond the limit writing fails with EDQUOT, for root too. statfs(2) inside ignores it
  and shows the whole disk; `usage` reads the group, as it was at the last commit (30 s).
- Full quotas are switched on at first use. Simple ones are used if somebody has chosen them.
- The limit holds for root too, but a tenant who makes subvolumes or snapshots inside the volume
  can exceed it between two looks (`usage`): see `localvolume.host.btrfs.limits`. All of them are
  counted, and `Usage.problem` says so.
- Content cannot be overwritten: new data never goes where the old is. A class that demands
  overwriting is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from localvolume.backends.model import (
    OURS,
    Abilities,
    BackendFailed,
    BackendName,
    Impossible,
    NotThisVolume,
    Progress,
    Record,
    Usage,
    grown_to,
)
from localvolume.backends.pool import directories
from localvolume.backends.pool.layout import MAKING
from localvolume.host.btrfs import limits
from localvolume.host.btrfs.limits import Held
from localvolume.host.btrfs.quota import have_counted, read_limit, set_limit
from localvolume.host.btrfs.subvolumes import (
    commit,
    create_subvolume,
    delete_subvolume,
    is_btrfs,
    read_subvolumes,
    subvolume_id,
    sync_and_clean,
)
from localvolume.host.filesystem.inodeflags import unlock, unlock_subvolume
from localvolume.host.mount.inuse import users_of
from localvolume.host.syscalls import closed_after, fstatfs
from localvolume.host.tree.beneath import LeadsOutside
from localvolume.host.tree.deletion import (
    DeletionIncomplete,
    DeletionStopped,
    NestedMount,
    delete_contents,
)
from localvolume.host.tree.trees import opened

# Delete a subvolume with all that a tenant made inside it, and wait until its space is free. A
# tenant who still has it open may make others inside meanwhile, and limits may be set again.

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
        subvolumes = read_subvolumes(fd)
        if identity not in subvolumes.parents:
            return deleted
        doomed = [*subvolumes.inside(identity), identity]
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
            elif error.errno not in _CHANGED:
                raise BackendFailed(
                    f"subvolume {one} cannot be deleted: {error.strerror}"
                ) from error
    raise BackendFailed("somebody keeps making subvolumes inside it")


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
    while time.monotonic() < deadline and not stop.wait(0.02):
        if not read_subvolumes(fd).ids.intersection(identities):
            break
    limits.forget(fd)


# An empty subvolume takes 16 KiB, and each change needs some more for a moment.
_LEAST_BYTES: Final = 1 << 20


def limit_of(record: Record) -> int | None:
    """The limit in bytes, None if not enforced; raises Impossible for what btrfs cannot do."""
    if record.volume_mode != "Filesystem":
        raise Impossible("a btrfs subvolume is no block device: use the image backend")
    if record.overwrite:
        raise Impossible(
            "btrfs writes new data elsewhere and never over the old, so that content cannot be"
            " overwritten: use the directory or image backend on ext4 or xfs"
        )
    if record.soft_bytes is not None:
        raise Impossible("btrfs has no soft limits")
    most = record.size_bytes if record.hard_bytes is None else record.hard_bytes
    if most < _LEAST_BYTES:
        raise Impossible(f"a btrfs volume needs at least {_LEAST_BYTES} bytes")
    return most if record.enforced else None


def usage_of(held: Held, most: int | None, free: int) -> Usage:
    """The usage of a volume with the limit `most`; its pool has `free` bytes left."""
    problem = ""
    if held.inside:
        problem = (
            f"{held.inside} subvolumes or snapshots were made inside it; btrfs counts each by"
            " itself, so that together they can exceed its size between two measurements"
        )
    return Usage(
        used_bytes=held.referenced,
        available_bytes=free if most is None else min(free, max(0, most - held.referenced)),
        problem=problem,
    )


_COUNTING_SHORT, _COUNTING_LONG = 1.0, 30.0


class BtrfsBackend(directories.InPlace):
    """Volumes as subvolumes. One object may be used for many pools and by many threads.

    `counting`: how many seconds to wait until everything is counted, when asked what can be done,
    and when making. `gone_seconds`: how long to wait after a removal for the kernel's work in the
    background, which goes on without us.
    """

    name: BackendName = "btrfs"

    def __init__(
        self,
        counting: tuple[float, float] = (_COUNTING_SHORT, _COUNTING_LONG),
        gone_seconds: float = 10.0,
    ) -> None:
        self._counting_short, self._counting_long = counting
        self._gone_seconds = gone_seconds
        # A look corrects limits, with records that may be older than the last growth: so the
        # largest size that a volume, by name and id, was ever given here counts.
        self._changing = threading.Lock()
        self._grown: dict[tuple[str, int], int] = {}

    def identity(self, fd: int) -> int:
        """The id of the subvolume whose directory is open; -1, which no record has, for others."""
        found = subvolume_id(fd)
        return -1 if found is None else found

    def abilities(self, pool: int, path: str) -> Abilities:
        with _readable(pool) as fd:
            if not is_btrfs(fd):
                return _unable("its filesystem is not btrfs", filesystem=False)
            try:
                quotas = have_counted(fd, self._counting_short)
            except OSError as error:
                return _unable(f"quotas cannot be switched on or read: {error.strerror}")
        if not quotas.consistent:
            return _unable(_COUNTING)
        return Abilities(enforce=True, overwrite=False)

    def make(self, pool: int, path: str, record: Record) -> Record:
        most = limit_of(record)
        with _readable(pool) as fd:
            if not is_btrfs(fd):
                raise Impossible("the pool's filesystem is not btrfs")
            if not have_counted(fd, self._counting_long).consistent:
                raise BackendFailed(_COUNTING)
            with opened(fd, f"{OURS}/{MAKING}") as making, self._changing:
                # What a crash left belongs to nobody yet, and may be incomplete.
                take_away(making, record.name)
                create_subvolume(making, record.name)
                with opened(making, record.name) as volume:
                    identity = self.identity(volume)
                    set_limit(fd, identity, most)
                    os.fchown(volume, record.uid, record.gid)
                    # After the owner: changing that clears setuid and setgid.
                    os.fchmod(volume, record.mode)
            # A power cut must not leave the subvolume without its limit.
            commit(fd)
        return replace(record, inode=identity)

    def copy(self, pool: int, path: str, record: Record, origin: Record) -> Record:
        """Always raises, as `abilities` say."""
        raise Impossible(self.abilities(pool, path).no_copies)

    def unmake(self, pool: int, path: str, record: Record) -> None:
        with _readable(pool) as fd:
            with opened(fd, f"{OURS}/{MAKING}") as making:
                removed = take_away(making, record.name)
            if removed is not None:
                commit(fd)
                wait_until_gone(fd, [removed], threading.Event(), self._gone_seconds)

    def attach(self, pool: int, path: str, record: Record) -> None:
        """Check that it is there, and set its limit to the record's if it differs."""
        most = limit_of(record)
        with _readable(pool) as fd:
            with directories.in_place(fd, record, self.identity):
                pass
            if read_limit(fd, record.inode) == most:
                return
            # Somebody changed it, or quotas were off meanwhile.
            have_counted(fd, self._counting_short)
            with self._changing:
                set_limit(fd, record.inode, most)
            commit(fd)

    def grow(self, pool: int, path: str, record: Record, size_bytes: int) -> Record:
        if size_bytes < record.size_bytes:
            raise Impossible("a volume cannot be made smaller")
        grown = grown_to(record, size_bytes)
        most = limit_of(grown)
        with _readable(pool) as fd:
            have_counted(fd, 0.0)
            if record.inode not in read_subvolumes(fd).parents:
                raise NotThisVolume(f"there is no subvolume {record.inode} (any more)")
            with self._changing:
                set_limit(fd, record.inode, most)
                if most is not None:
                    self._grown[record.name, record.inode] = most
            commit(fd)
        return grown

    def usage(self, pool: int, path: str, records: Sequence[Record]) -> Mapping[str, Usage]:
        with _readable(pool) as fd:
            have_counted(fd, 0.0)
            with self._changing:
                most = {record.inode: self._limit_now(record) for record in records}
                held = limits.look(fd, most)
            found = fstatfs(fd)
        free = found.available * found.block_size
        return {
            record.name: usage_of(held[record.inode], most[record.inode], free)
            for record in records
            if record.inode in held
        }

    def _limit_now(self, record: Record) -> int | None:
        most = limit_of(record)
        grown = self._grown.get((record.name, record.inode), 0)
        return None if most is None else max(most, grown)

    def retire(self, pool: int, path: str, record: Record) -> None:
        with _readable(pool) as fd:
            try:
                with directories.the_volume(fd, record.directory, record, self.identity) as volume:
                    # Its tenant may have made it read-only or immutable: then it cannot be moved.
                    unlock_subvolume(volume)
                    unlock(volume)
            except FileNotFoundError:
                pass
            directories.to_trash(fd, path, record, self.identity)
            commit(fd)

    def purge(
        self,
        pool: int,
        path: str,
        record: Record,
        *,
        stop: threading.Event,
        files_per_second: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Delete it. The kernel does so in the background, at its own pace: no rate applies."""
        with _readable(pool) as fd:
            removed: Sequence[int] = ()
            try:
                place = directories.in_trash(record)
                with directories.the_volume(fd, place, record, self.identity) as volume:
                    removed = remove_subvolume(fd, volume, record.inode, stop, progress)
            except FileNotFoundError:
                pass
            commit(fd)
            wait_until_gone(fd, removed, stop, self._gone_seconds)

    def is_untouched(self, pool: int, path: str, record: Record) -> bool:
        with _readable(pool) as fd:
            return directories.is_empty(fd, record, self.identity)


_COUNTING: Final = (
    "btrfs is counting everything anew, as its quotas were switched on or out of step: sizes are"
    " enforced once it has ended"
)


def _unable(why_not: str, *, filesystem: bool = True) -> Abilities:
    return Abilities(enforce=False, why_not=why_not, filesystem=filesystem, overwrite=False)


@contextmanager
def _readable(pool: int) -> Iterator[int]:
    """The pool's directory, opened for ioctl, which takes no O_PATH descriptor."""
    with closed_after(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=pool)) as fd:
        yield fd
