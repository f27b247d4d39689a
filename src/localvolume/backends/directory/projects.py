"""Which quota project a new volume gets: one that nobody on its filesystem has.

Projects are the filesystem's, and several pools may lie on one. So what a pool takes is chosen
under a lock of all of them, beside the records of all of them. Who is not seen there (a pool that
another agent has, or that is not open yet) is seen in the kernel: before, where its directory is in
the project already, and after, where both have put theirs in (`check_alone`). What is known besides
is on disk alone, in the records.
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
"""Below it the administrator's own projects are left alone (/etc/projects counts from 1)."""

# Of four thousand million ids. That so many in turn are in use is no chance: something is wrong.
_MOST_TRIED: Final = 100

# xfs forgets a removed directory in the background, some milliseconds later.
_FORGETTING_SECONDS: Final = 2.0
_PAUSE: Final = 0.02


class ProjectTaken(BackendFailed):
    """Somebody else has put something into the project meanwhile: another one is needed."""


class Neighbour(Protocol):
    """An open pool, as the others of its filesystem see it."""

    def volumes(self) -> Mapping[str, Record]:
        """Its volumes by name, those included that are being begun right now."""
        ...


class Neighbours:
    """The open pools of one filesystem, by the inode of their directory."""

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
        """Whether a volume has the project of that volume of the pool at that inode."""
        with _knowing:
            pools = list(self._pools)
        return any(
            record.project == known.project and (where, name) != (inode, known.name)
            for where, pool in pools
            for name, record in pool.volumes().items()
        )

    def join(self, inode: int, pool: Neighbour) -> None:
        """Be seen by the others."""
        with _knowing:
            self._pools.append((inode, pool))

    def leave(self, pool: Neighbour) -> None:
        """Be seen no more; harmless when done before."""
        with _knowing:
            self._pools = [one for one in self._pools if one[1] is not pool]


# Never held while a disk is asked: one that hangs must not hold up the pools of others.
_knowing = threading.Lock()
_of_filesystem: dict[int, Neighbours] = {}


def neighbours_on(fd: int) -> Neighbours:
    """Those of the filesystem that an open directory is of; always the same for the same one."""
    device = os.fstat(fd).st_dev
    with _knowing:
        return _of_filesystem.setdefault(device, Neighbours())


def free_project(fd: int, taken: Collection[int], draw: Callable[[int], int]) -> int:
    """An id that is not `taken` and that nothing on this filesystem belongs to.

    `draw` chooses a number below the one it is given. Nobody should be able to foresee which: a
    tenant may charge his files to any project, and so to those of volumes to come.

    Raises BackendFailed, OSError.
    """
    taken = frozenset(taken)
    for _ in range(_MOST_TRIED):
        project = FIRST_PROJECT + draw(projectquota.HIGHEST_PROJECT + 1 - FIRST_PROJECT)
        if project in taken:
            continue
        found = projectquota.read(fd, project)
        # A directory without a file in it is an inode, too.
        if not found.used_bytes and not found.used_inodes:
            return project
    raise BackendFailed(f"no free quota project among {_MOST_TRIED} chosen at random")


def check_alone(fd: int, project: int) -> None:
    """See that one directory, the caller's own, is all there is in a project.

    Of two agents who put a directory each into the same one, at least the second sees both.
    Raises ProjectTaken, OSError.
    """
    if not _comes_down_to(fd, project, 1):
        raise ProjectTaken(f"something else is in the quota project {project}; it gets another")


@contextmanager
def nobodys(pool: int, known: Record) -> Iterator[bool]:
    """Whether nothing is in the project of that volume, by the kernel and all records but its own.

    It stays so while this is entered. Raises OSError.
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
    """Wait, but not for long, until no more inodes than that are counted."""
    deadline = time.monotonic() + _FORGETTING_SECONDS
    while projectquota.read(fd, project).used_inodes > inodes:
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True
