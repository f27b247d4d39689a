"""Which quota project a new volume gets: one that nobody on its filesystem has.

Projects belong to the filesystem, and several pools may lie on one. So a pool chooses under a lock
that all of them share, and by the records of all of them. Pools that are not seen there (another
agent has them, or they are not open yet) are seen in the kernel: before, if their directory is in
the project already, and after, once both have put theirs in (`check_alone`). All else that is
known is on disk, in the records.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

from localvolume.backends.model import BackendFailed, Record
from localvolume.host.filesystem import projectquota

FIRST_PROJECT: Final = 100_000
"""Lower ids are left to the administrator's own projects (/etc/projects counts from 1)."""

# There are four thousand million ids: if that many in turn are in use, something is wrong.
_MOST_TRIED: Final = 100

# xfs forgets a removed directory in the background, some milliseconds after its removal.
_FORGETTING_SECONDS: Final = 2.0
_PAUSE: Final = 0.02


class ProjectTaken(BackendFailed):
    """Something else has been put into the project meanwhile: another one is needed."""


class Neighbour(Protocol):
    """An open pool, as the others on its filesystem see it."""

    def volumes(self) -> Mapping[str, Record]:
        """Its volumes by name, including those that are being begun right now."""
        ...


class Neighbours:
    """The open pools on one filesystem, by the inode of their directory."""

    def __init__(self) -> None:
        #: Held while a place or a project is chosen, and while a project is freed.
        self.choosing = threading.Lock()
        self._pools: list[tuple[int, Neighbour]] = []

    def projects(self) -> set[int]:
        """The projects of all their volumes."""
        with _knowing:
            pools = list(self._pools)
        return {record.project for _, pool in pools for record in pool.volumes().values()}

    def has_another(self, inode: int, known: Record) -> bool:
        """Whether another volume has the project of `known`, which is in the pool at that inode."""
        with _knowing:
            pools = list(self._pools)
        return any(
            record.project == known.project and (where, name) != (inode, known.name)
            for where, pool in pools
            for name, record in pool.volumes().items()
        )

    def join(self, inode: int, pool: Neighbour) -> None:
        """Make the pool visible to the others."""
        with _knowing:
            self._pools.append((inode, pool))

    def leave(self, pool: Neighbour) -> None:
        """Hide the pool from the others; harmless if done before."""
        with _knowing:
            self._pools = [one for one in self._pools if one[1] is not pool]


# Never held while a disk is read: one that hangs must not hold up the pools of others.
_knowing = threading.Lock()
_of_filesystem: dict[int, Neighbours] = {}


def neighbours_on(fd: int) -> Neighbours:
    """The pools on an open directory's filesystem; the same object for the same filesystem."""
    device = os.fstat(fd).st_dev
    with _knowing:
        return _of_filesystem.setdefault(device, Neighbours())


def free_project(fd: int, taken: Collection[int], draw: Callable[[int], int]) -> int:
    """An id that is not `taken` and that nothing on this filesystem belongs to.

    `draw` returns a number below its argument. It should be unpredictable: a tenant may charge its
    files to any project, and so to those of volumes to come.

    Raises BackendFailed, OSError.
    """
    taken = frozenset(taken)
    for _ in range(_MOST_TRIED):
        project = FIRST_PROJECT + draw(projectquota.HIGHEST_PROJECT + 1 - FIRST_PROJECT)
        if project in taken:
            continue
        found = projectquota.read(fd, project)
        # An empty directory counts as an inode, too.
        if not found.used_bytes and not found.used_inodes:
            return project
    raise BackendFailed(f"no free quota project among {_MOST_TRIED} chosen at random")


def check_alone(fd: int, project: int) -> None:
    """Check that one directory, the caller's own, is all there is in a project.

    If two agents each put a directory into the same project, at least the second sees both.
    Raises ProjectTaken, OSError.
    """
    if not _comes_down_to(fd, project, 1):
        raise ProjectTaken(f"something else is in the quota project {project}; it gets another")


@contextmanager
def nobodys(pool: int, known: Record) -> Iterator[bool]:
    """Yield whether the project of that volume is empty, by the kernel and all other records.

    This stays so inside the context. Raises OSError.
    """
    neighbours = neighbours_on(pool)
    inode = os.fstat(pool).st_ino
    if neighbours.has_another(inode, known) or not _comes_down_to(pool, known.project, 0):
        yield False
        return
    with neighbours.choosing:
        yield (
            not neighbours.has_another(inode, known)
            and not projectquota.read(pool, known.project).used_inodes
        )


def _comes_down_to(fd: int, project: int, inodes: int) -> bool:
    """Wait briefly until at most that many inodes are counted; returns whether they are."""
    deadline = time.monotonic() + _FORGETTING_SECONDS
    while projectquota.read(fd, project).used_inodes > inodes:
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True
