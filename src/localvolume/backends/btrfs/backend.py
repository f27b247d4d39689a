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
- Snapshots and copies share data with their volume: see `localvolume.backends.btrfs.copying`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from localvolume.backends.btrfs.copying import APART, SIMPLE, cut, is_cut
from localvolume.backends.btrfs.removing import (
    remove_subvolume,
    take_away,
    take_copy_away,
    wait_until_gone,
)
from localvolume.backends.model import (
    OURS,
    Abilities,
    BackendFailed,
    BackendName,
    Blocks,
    Impossible,
    NoSpace,
    NotThisVolume,
    Progress,
    Record,
    Usage,
    grown_to,
    has_content_of,
)
from localvolume.backends.pool import directories
from localvolume.backends.pool.layout import MAKING
from localvolume.host.btrfs import limits
from localvolume.host.btrfs.limits import Held
from localvolume.host.btrfs.quota import Quotas, have_counted, read_groups, read_limit, set_limit
from localvolume.host.btrfs.subvolumes import (
    commit,
    create_subvolume,
    is_btrfs,
    is_named,
    subvolume_id,
)
from localvolume.host.filesystem.inodeflags import lock_subvolume, unlock_subvolume
from localvolume.host.syscalls import closed_after, fstatfs
from localvolume.host.tree.trees import opened

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
    # Nobody writes to a snapshot.
    return most if record.enforced and not record.snapshot_of else None


def usage_of(
    record: Record, held: Held | None, most: int | None, free: int, *, shared: bool
) -> Usage:
    """The usage of a volume with the limit `most`; its pool has `free` bytes left.

    `held` None: too much was made inside it to be measured. `shared`: it may share data with
    copies. Whatever is shared may have to be written anew.
    """
    if held is None:
        return Usage(problem=_TOO_MANY, unbounded=True)
    if record.snapshot_of:
        return Usage(
            used_bytes=held.referenced,
            available_bytes=0,
            taken_bytes=held.exclusive,
            outstanding_bytes=0,
        )
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
        taken_bytes=held.exclusive if shared else None,
        outstanding_bytes=max(0, most - held.exclusive) if shared and most is not None else None,
    )


def abilities_with(quotas: Quotas) -> Abilities:
    """What can be done where quotas are like that, switched on."""
    no_copies = SIMPLE if quotas.simple else ""
    if not quotas.consistent:
        # Copies wait for that as all volumes do.
        return replace(_unable(_COUNTING), no_copies=no_copies)
    return Abilities(enforce=True, overwrite=False, no_copies=no_copies, no_groups=APART)


_COUNTING_SHORT, _COUNTING_LONG = 1.0, 30.0


class BtrfsBackend(directories.InPlace):
    """Volumes as subvolumes. One object may be used for many pools and by many threads.

    `counting`: how many seconds to wait until everything is counted, when asked what can be done,
    and when making. `gone_seconds`: how long to wait after a removal for the kernel's work in the
    background, which goes on without us. `most_subvolumes`: so many inside volumes are measured.
    """

    name: BackendName = "btrfs"

    def __init__(
        self,
        counting: tuple[float, float] = (_COUNTING_SHORT, _COUNTING_LONG),
        gone_seconds: float = 10.0,
        most_subvolumes: int = limits.MOST,
    ) -> None:
        self._counting_short, self._counting_long = counting
        self._gone_seconds = gone_seconds
        self._most_subvolumes = most_subvolumes
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
        return abilities_with(quotas)

    def make(self, pool: int, path: str, record: Record) -> Record:
        most = limit_of(record)
        with _readable(pool) as fd:
            self._counted(fd)
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
        with _readable(pool) as fd:
            if self._counted(fd).simple:
                raise Impossible(SIMPLE)
            with opened(fd, f"{OURS}/{MAKING}") as making:
                if is_cut(making, record, self.identity):
                    return record
                try:
                    return self._copied(fd, making, record, origin)
                except BaseException:
                    with suppress(BackendFailed, OSError):
                        take_copy_away(fd, making, record.name)
                    raise

    def blocks(
        self, pool: int, path: str, record: Record, base: Record | None, start: int
    ) -> Blocks:
        """Always raises: a subvolume has no blocks of its own."""
        raise Impossible(
            f"{record.name} is a subvolume, which has files and no blocks of its own: read all of"
            " it, or have the files compared"
        )

    def _copied(self, fd: int, making: int, record: Record, origin: Record) -> Record:
        at = cut(fd, making, record, origin, self.identity)
        with opened(making, record.name) as volume, self._changing:
            identity = self.identity(volume)
            set_limit(fd, identity, limit_of(record))
        # Also counts what it holds.
        commit(fd)
        made = replace(record, inode=identity)
        if not record.snapshot_of:
            return made
        self._counted(fd)
        quotas = read_groups(fd, [identity])
        if not quotas.consistent:
            # Everything began to be counted anew since.
            raise BackendFailed(_COUNTING)
        if identity not in quotas.groups:
            raise BackendFailed("what the snapshot holds is not counted")
        holds = quotas.groups[identity].referenced
        if holds > record.holds_bytes and not record.cut_at:
            # Otherwise room could be lacking that is promised to others.
            raise NoSpace(
                f"{origin.name} was written to meanwhile: the snapshot would hold {holds} bytes,"
                " and less room was found for it"
            )
        return replace(made, cut_at=at, holds_bytes=holds)

    def _counted(self, fd: int) -> Quotas:
        """The quotas, by which everything is counted. Raises Impossible, BackendFailed, OSError."""
        if not is_btrfs(fd):
            raise Impossible("the pool's filesystem is not btrfs")
        quotas = have_counted(fd, self._counting_long)
        if not quotas.consistent:
            raise BackendFailed(_COUNTING)
        return quotas

    def cut_together(
        self, pool: int, path: str, members: Sequence[tuple[Record, Record]]
    ) -> Sequence[Record]:
        """Not served: see `localvolume.backends.btrfs.copying`."""
        raise Impossible(APART)

    def unmake(self, pool: int, path: str, record: Record) -> None:
        with _readable(pool) as fd:
            if record.snapshot_of:
                # So that it can be moved from its place, if it has come so far.
                with (
                    suppress(FileNotFoundError, NotThisVolume),
                    directories.the_volume(fd, record.directory, record, self.identity) as volume,
                ):
                    unlock_subvolume(volume)
            with opened(fd, f"{OURS}/{MAKING}") as making:
                if has_content_of(record):
                    removed = take_copy_away(fd, making, record.name)
                else:
                    empty = take_away(making, record.name)
                    removed = [] if empty is None else [empty]
            if removed:
                commit(fd)
                wait_until_gone(fd, removed, threading.Event(), self._gone_seconds)

    def attach(self, pool: int, path: str, record: Record) -> None:
        """Check that it is there, and set its limit to the record's if it differs.

        A snapshot becomes read-only, once and for all.
        """
        most = limit_of(record)
        with _readable(pool) as fd:
            with directories.in_place(fd, record, self.identity) as volume:
                if record.snapshot_of:
                    lock_subvolume(volume)
            if record.snapshot_of:
                commit(fd)
                return
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
            if not is_named(fd, record.inode):
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
                held = limits.look(fd, most, self._most_subvolumes)
            found = fstatfs(fd)
        free = found.available * found.block_size
        shared = any(has_content_of(record) for record in records)
        return {
            record.name: usage_of(
                record, held[record.inode], most[record.inode], free, shared=shared
            )
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
                    # Its tenant may have made it read-only: then it cannot be moved.
                    unlock_subvolume(volume)
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
        if has_content_of(record):
            return False
        with _readable(pool) as fd:
            return directories.is_empty(fd, record, self.identity)


_COUNTING: Final = (
    "btrfs is counting everything anew, as its quotas were switched on or out of step: sizes are"
    " enforced once it has ended"
)


_TOO_MANY: Final = (
    "so many subvolumes or snapshots were made inside it that it is not measured, and no limit"
    " holds for what is in new ones: have them deleted"
)


def _unable(why_not: str, *, filesystem: bool = True) -> Abilities:
    return Abilities(
        enforce=False, why_not=why_not, filesystem=filesystem, overwrite=False, no_copies=why_not
    )


@contextmanager
def _readable(pool: int) -> Iterator[int]:
    """The pool's directory, opened for ioctl, which takes no O_PATH descriptor."""
    with closed_after(os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=pool)) as fd:
        yield fd
