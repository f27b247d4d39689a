"""Volumes that are plain directories, limited by a project quota if the filesystem has it."""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from localvolume.backends.directory.copying import NO_SNAPSHOTS, Clones
from localvolume.backends.directory.projects import check_alone, free_project, nobodys
from localvolume.backends.directory.trash import delete_directory
from localvolume.backends.model import (
    NO_GROUPS,
    OURS,
    Abilities,
    BackendFailed,
    BackendName,
    Blocks,
    Impossible,
    NotThisVolume,
    Progress,
    Record,
    Usage,
    grown_to,
    has_content_of,
)
from localvolume.backends.pool import directories
from localvolume.backends.pool.layout import MAKING, TRASH
from localvolume.backends.pool.overwriting import can_overwrite, check_overwriting
from localvolume.host.filesystem import projectquota
from localvolume.host.syscalls import fstatfs
from localvolume.host.tree.trees import make_directory, opened

_NO_SUCH_QUOTA: Final = frozenset(
    {errno.ESRCH, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL}
)


class DirectoryBackend(directories.InPlace):
    """One directory for each volume. Its size is enforced by a project quota, or not at all."""

    name: BackendName = "directory"

    def __init__(self, draw: Callable[[int], int] = secrets.randbelow) -> None:
        """`draw` chooses the quota projects: it returns a number below its argument."""
        self._draw = draw
        self._clones = Clones()

    def identity(self, fd: int) -> int:
        """The inode number, which identifies a directory."""
        return directories.inode_of(fd)

    def free_project(self, pool: int, record: Record, taken: Collection[int]) -> int:
        """A quota project for a new volume, 0 if it needs none; raises as `make`."""
        if not record.enforced:
            return 0
        if (why_not := projectquota.probe(pool)) is not None:
            raise Impossible(f"its size cannot be enforced: {why_not}")
        return free_project(pool, taken, self._draw)

    def abilities(self, pool: int, path: str) -> Abilities:
        """What can be done here."""
        try:
            why_not = projectquota.probe(pool)
        except OSError as error:
            why_not = str(error)
        return Abilities(
            enforce=why_not is None,
            why_not=why_not or "",
            overwrite=can_overwrite(pool),
            no_copies=self._clones.why_none(pool),
            no_snapshots=NO_SNAPSHOTS,
        )

    def make(self, pool: int, path: str, record: Record) -> Record:
        """Make `.localvolume/making/<name>`, limited and owned as the record says."""
        if record.volume_mode != "Filesystem":
            raise Impossible("a directory cannot be a block device")
        return self._made(pool, record)

    def _made(self, pool: int, record: Record) -> Record:
        check_overwriting(pool, record)
        if record.enforced and not record.project:
            raise Impossible("a size is enforced by a quota project, and the record has none")
        with opened(pool, f"{OURS}/{MAKING}") as making:
            with suppress(FileNotFoundError):
                os.rmdir(record.name, dir_fd=making)
            make_directory(making, record.name, 0o700)
            with opened(making, record.name) as fd:
                if record.enforced:
                    projectquota.assign(fd, record.project)
                    # Before its limit is set: it might be somebody else's project.
                    check_alone(fd, record.project)
                    _limit(fd, record)
                os.fchown(fd, record.uid, record.gid)
                # After the owner: changing that clears setuid and setgid.
                os.fchmod(fd, record.mode)
                os.fsync(fd)
                return replace(record, inode=self.identity(fd))

    def copy(self, pool: int, path: str, record: Record, origin: Record) -> Record:
        """Clone a directory that nobody uses, on an xfs that can share blocks between files."""
        if why_not := NO_SNAPSHOTS if record.snapshot_of else self._clones.why_none(pool):
            raise Impossible(why_not)
        # What a crash left belongs to nobody yet, and may be incomplete.
        _take_copy_away(pool, record)
        try:
            made = self._made(pool, record)
            with (
                directories.in_place(pool, origin, self.identity) as source,
                opened(pool, directories.in_making(record)) as fd,
            ):
                self._clones.fill(fd, source, f"{path.rstrip('/')}/{origin.directory}", origin)
        except BaseException:
            # A full pool must not stay full until the next attempt.
            with suppress(BackendFailed, OSError):
                _take_copy_away(pool, record)
            raise
        return made

    def blocks(
        self, pool: int, path: str, record: Record, base: Record | None, start: int
    ) -> Blocks:
        """Always raises: a directory has no blocks of its own."""
        raise Impossible("a directory has no blocks of its own")

    def cut_together(
        self, pool: int, path: str, members: Sequence[tuple[Record, Record]]
    ) -> Sequence[Record]:
        """Not served: see NO_GROUPS."""
        raise Impossible(NO_GROUPS)

    def unmake(self, pool: int, path: str, record: Record) -> None:
        """Remove it from where it was made, if it is empty or a clone, and free its quota."""
        if has_content_of(record):
            _take_copy_away(pool, record)
        else:
            directories.remove_empty(pool, directories.in_making(record))
        _free(pool, record)

    def attach(self, pool: int, path: str, record: Record) -> None:
        """Check that it is there, and set its quota as recorded."""
        with directories.in_place(pool, record, self.identity) as fd:
            if record.project:
                _limit(fd, record)

    def grow(self, pool: int, path: str, record: Record, size_bytes: int) -> Record:
        """Raise its limits; those that are set apart from the size in proportion."""
        grown = grown_to(record, size_bytes)
        with directories.in_place(pool, record, self.identity) as fd:
            if record.project:
                _limit(fd, grown)
        return grown

    def usage(self, pool: int, path: str, records: Sequence[Record]) -> Mapping[str, Usage]:
        """What the quota counts for each that has one, and why it may not count all writes."""
        found = fstatfs(pool)
        free = found.available * found.block_size
        usage: dict[str, Usage] = {}
        for record in records:
            if not record.project:
                continue
            try:
                read = projectquota.read(pool, record.project)
            except OSError as error:
                if error.errno in _NO_SUCH_QUOTA:
                    continue
                raise
            left = max(0, read.hard_bytes - read.used_bytes) if read.hard_bytes else free
            usage[record.name] = Usage(
                used_bytes=read.used_bytes,
                available_bytes=min(left, free),
                used_inodes=read.used_inodes,
                problem=_escape(pool, record),
            )
        return usage

    def retire(self, pool: int, path: str, record: Record) -> None:
        """Move it into the trash."""
        directories.to_trash(pool, path, record, self.identity)

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
        """Delete it from the trash with all that is in it, and free its quota."""
        with suppress(FileNotFoundError):
            # Even if it is adopted: what is there was put there by us.
            with directories.the_volume(pool, directories.in_trash(record), record, self.identity):
                pass
            delete_directory(
                pool,
                f"{OURS}/{TRASH}",
                record.trash,
                overwrite=record.overwrite,
                stop=stop,
                files_per_second=files_per_second,
                progress=progress,
            )
        _free(pool, record)

    def is_untouched(self, pool: int, path: str, record: Record) -> bool:
        """Whether it is certainly this volume, and empty."""
        return directories.is_empty(pool, record, self.identity)


def _take_copy_away(pool: int, record: Record) -> None:
    """Delete what lies where a clone is made, with all that is in it: nobody was told of it."""
    with suppress(FileNotFoundError):
        delete_directory(
            pool, f"{OURS}/{MAKING}", record.name, overwrite=False, stop=threading.Event()
        )


def _escape(pool: int, record: Record) -> str:
    """Why new files in a volume are not counted; "" if they are.

    This is only reported, not repaired: if the directory were counted again and its files were not,
    files could no longer be moved within the volume (EXDEV).
    """
    if record.state == "removed":
        return ""
    try:
        with directories.in_place(pool, record, directories.inode_of) as fd:
            found = projectquota.membership(fd)
    except NotThisVolume:
        # On its way to the trash, or lost: its limit does not matter.
        return ""
    except OSError as error:
        return f"it is not known whether its limit holds: {error.strerror}"
    if found.project != record.project:
        return (
            f"its directory is in quota project {found.project}, not in {record.project}:"
            " new files are not counted against its limit"
        )
    if not found.inherited:
        return (
            f"its directory no longer passes on its quota project {record.project}:"
            " new files are not counted against its limit"
        )
    return ""


def _limit(fd: int, record: Record) -> None:
    hard = record.hard_bytes
    if hard is None and record.soft_bytes is None:
        hard = record.size_bytes
    try:
        projectquota.set_limits(fd, record.project, soft_bytes=record.soft_bytes, hard_bytes=hard)
    except ValueError as error:
        raise Impossible(str(error)) from error


def _free(pool: int, record: Record) -> None:
    """Lift the limits of a project that nothing is in any more.

    If something is in it, they stay: the project is another's by now, or a file is still open. The
    next user of the project sets its own.
    """
    if not record.project:
        return
    try:
        with nobodys(pool, record) as free:
            if free:
                projectquota.set_limits(pool, record.project, soft_bytes=0, hard_bytes=0)
    except OSError as error:
        # If quotas have been turned off since, there is nothing to lift.
        if error.errno not in _NO_SUCH_QUOTA:
            raise
