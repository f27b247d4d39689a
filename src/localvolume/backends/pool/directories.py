"""Volumes that are directories: put into their place, moved to the trash, taken away.

Shared by the backends whose volumes are directories or look like them. `identify` returns what
identifies a volume: its inode, or a subvolume's id.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from localvolume.backends.model import (
    OURS,
    Backend,
    BackendFailed,
    Busy,
    Lost,
    NotThisVolume,
    Record,
    Source,
    has_content_of,
)
from localvolume.backends.pool.layout import MAKING, TRASH, check_directory, parents_of
from localvolume.host.filesystem.inodeflags import unlock
from localvolume.host.mount.inuse import users_of
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.beneath import LeadsOutside, open_beneath
from localvolume.host.tree.removal import DIRECTORY_FLAGS
from localvolume.host.tree.trees import (
    holds_anything,
    make_directory,
    opened,
    pinned,
    rename_new,
    sync_directory,
)

Identify = Callable[[int], int]

PARENT_MODE: Final = 0o755


def inode_of(fd: int) -> int:
    """The inode number, which identifies an ordinary directory."""
    return os.fstat(fd).st_ino


@contextmanager
def the_volume(pool: int, path: str, record: Record, identify: Identify | None) -> Iterator[int]:
    """Yield the open directory of a volume at `path` below the pool, proved to be its own.

    An adopted volume (and any without `identify`) is only known to be a directory, on this mount
    and reached without links. Raises FileNotFoundError if nothing is there, NotThisVolume if
    something else is, OSError.
    """
    try:
        fd = open_beneath(pool, path, DIRECTORY_FLAGS)
    except LeadsOutside as error:
        what = "a symbolic link" if error.errno == errno.ELOOP else "another filesystem"
        raise NotThisVolume(f"{what} lies at {path} or on the way there") from error
    except NotADirectoryError as error:
        raise NotThisVolume(f"what lies at {path} is not a directory") from error
    with closed_after(fd):
        if identify and not record.adopted and identify(fd) != record.inode:
            raise NotThisVolume(f"what lies at {path} is another directory than was made")
        yield fd


def is_there(pool: int, path: str, record: Record, identify: Identify) -> bool:
    """Whether the volume lies at that place; raises NotThisVolume if something else does."""
    try:
        with the_volume(pool, path, record, identify):
            return True
    except FileNotFoundError:
        return False


@contextmanager
def in_place(pool: int, record: Record, identify: Identify) -> Iterator[int]:
    """As `the_volume`, at its own place; also raises NotThisVolume if nothing is there."""
    with ExitStack() as stack:
        try:
            fd = stack.enter_context(the_volume(pool, record.directory, record, identify))
        except FileNotFoundError:
            raise NotThisVolume(f"there is nothing at {record.directory}") from None
        yield fd


def is_empty(pool: int, record: Record, identify: Identify) -> bool:
    """Whether the volume certainly lies in its place, and is empty."""
    try:
        with the_volume(pool, record.directory, record, identify) as fd:
            return not holds_anything(fd)
    except (OSError, NotThisVolume):
        return False


class InPlace:
    """What backends whose volumes are directories have in common: see ``model.Backend``."""

    def astray(self, pool: int, path: str, records: Sequence[Record]) -> list[str]:
        """Never any: the path is the volume's own."""
        return []

    @contextmanager
    def ready(self: Backend, pool: int, path: str, record: Record) -> Iterator[Source]:
        """The volume's directory, limited as the record says."""
        self.attach(pool, path, record)
        with in_place(pool, record, self.identity) as fd:
            yield Source(record=record, fd=fd)

    def host_path(self, host_dir: str, pool_id: str, record: Record) -> str:
        """The volume's directory, as the host sees it."""
        return f"{host_dir.rstrip('/')}/{record.directory}"


def in_making(record: Record) -> str:
    """Where a volume is before it is put into its place."""
    return f"{OURS}/{MAKING}/{record.name}"


def in_trash(record: Record) -> str:
    """Where a removed volume is."""
    return f"{OURS}/{TRASH}/{record.trash}"


def put_into_place(pool: int, record: Record, identify: Identify) -> None:
    """Move a volume that was made to where it belongs; may be repeated.

    Raises NotThisVolume if anything else lies there, OSError.
    """
    check_directory(record.directory)
    make_parents(pool, record.directory)
    _move(pool, in_making(record), record.directory, record, identify)


def to_trash(pool: int, path: str, record: Record, identify: Identify) -> None:
    """Move a volume into the trash as `record.trash`, in one step; may be repeated.

    `path` is where this process sees the pool, without links. Raises NotThisVolume, Busy while
    something is mounted in it or it is mounted elsewhere (a pod's mount), OSError.
    """
    check_directory(record.directory)
    _refuse_users(pool, path, record, identify)
    # Its tenant may have made it immutable or append-only: then the kernel would not move it.
    with (
        suppress(FileNotFoundError),
        the_volume(pool, record.directory, record, identify) as volume,
    ):
        unlock(volume)
    _move(pool, record.directory, in_trash(record), record, identify)


def _move(pool: int, source: str, target: str, record: Record, identify: Identify) -> None:
    if not is_there(pool, source, record, identify):
        # It was moved before a crash, or is lost.
        if is_there(pool, target, record, identify):
            return
        raise Lost(f"{record.name} is gone: there is nothing at {source}")
    with above(pool, source) as from_fd, above(pool, target) as to_fd:
        move_for_good(from_fd, split(source)[1], to_fd, target)


def move_for_good(from_fd: int, name: str, to_fd: int, target: str) -> None:
    """Move `name` in one directory to the place `target` in another, on disk when this returns.

    `to_fd` is the directory above that place. Raises NotThisVolume if it is taken, OSError.
    """
    try:
        rename_new(from_fd, name, to_fd, split(target)[1])
    except FileExistsError:
        raise NotThisVolume(f"something else lies at {target}") from None
    # Until both are on disk, a power cut may leave either name.
    sync_directory(to_fd)
    sync_directory(from_fd)


def back_to_making(pool: int, path: str, record: Record, identify: Identify) -> None:
    """Move a volume that nobody has back to where it was made, out of everybody's reach.

    `path` is as in `to_trash`. Raises BackendFailed if somebody has it mounted or has written to
    it, and leaves it where it was then. A copy was never empty. Raises OSError.
    """
    _refuse_users(pool, path, record, identify)
    _refuse_content(pool, record.directory, record, identify)
    _move(pool, record.directory, in_making(record), record, identify)
    try:
        _refuse_content(pool, in_making(record), record, identify)
    except BackendFailed:
        _move(pool, in_making(record), record.directory, record, identify)
        raise


def _refuse_users(pool: int, path: str, record: Record, identify: Identify) -> None:
    place = record.directory
    with suppress(FileNotFoundError), the_volume(pool, place, record, identify) as fd:
        if users := users_of(fd, f"{path.rstrip('/')}/{place}"):
            raise Busy(f"{place} is in use: {users[0]}")


def _refuse_content(pool: int, path: str, record: Record, identify: Identify) -> None:
    if has_content_of(record):
        return
    with the_volume(pool, path, record, identify) as fd:
        if holds_anything(fd):
            raise BackendFailed(f"{record.directory} is not empty: somebody has written to it")


def remove_empty(pool: int, path: str) -> None:
    """Remove an empty directory, if it is there. Raises LeadsOutside, OSError."""
    with suppress(FileNotFoundError), above(pool, path) as fd:
        os.rmdir(split(path)[1], dir_fd=fd)


# --- the directories above a volume: checked, made with it, and removed with the last -------------


def split(path: str) -> tuple[str, str]:
    """The directory above a place ("" for the pool itself), and the place's name in it."""
    above, _, name = path.rpartition("/")
    return above, name


@contextmanager
def above(pool: int, path: str) -> Iterator[int]:
    """Yield the open directory above a place; raises as `pinned`."""
    parent, _ = split(path)
    if parent:
        with pinned(pool, parent) as fd:
            yield fd
    else:
        yield pool


def check_parents(pool: int, directory: str, explained: Collection[str]) -> None:
    """Check that only parents of volumes are on the way to a place.

    `explained` are the parents of the places of other volumes. Any other parent must look like
    one: it belongs to root, and holds only directories. Raises NotThisVolume, OSError.
    """
    for parent in parents_of(directory):
        try:
            with opened(pool, parent) as fd:
                _check_parent(fd, parent)
                if parent not in explained and not _only_directories(fd):
                    raise NotThisVolume(f"{parent} holds files, and no volume here explains it")
        except FileNotFoundError:
            return
        except LeadsOutside as error:
            raise NotThisVolume(f"{parent} leads out of the pool: {error.strerror}") from error
        except NotADirectoryError as error:
            raise NotThisVolume(f"{parent} is not a directory") from error


def _check_parent(fd: int, parent: str) -> None:
    found = os.fstat(fd)
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NotThisVolume(f"others than root may write to {parent} and could swap what is in it")


def _only_directories(fd: int) -> bool:
    with os.scandir(fd) as entries:
        return all(entry.is_dir(follow_symlinks=False) for entry in entries)


def make_parents(pool: int, directory: str) -> None:
    """Make the directories on the way to a place; raises as `check_parents`."""
    for parent in parents_of(directory):
        with above(pool, parent) as fd:
            if make_directory(fd, split(parent)[1], PARENT_MODE):
                sync_directory(fd)
        with pinned(pool, parent) as made:
            _check_parent(made, parent)


def remove_parents(pool: int, directory: str, needed: Collection[str]) -> None:
    """Remove the directories on the way to a place that are empty and not `needed`."""
    for parent in reversed(parents_of(directory)):
        if parent in needed:
            return
        try:
            with above(pool, parent) as fd:
                os.rmdir(split(parent)[1], dir_fd=fd)
        except FileNotFoundError:
            continue
        except OSError:
            # It is not empty, or not ours to judge: leaving it harms nobody.
            return
