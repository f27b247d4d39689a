"""The directories above a volume in its pool: proved, made with it, and removed with the last."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from localvolume.backends.model import NotThisVolume
from localvolume.backends.pool.layout import parents_of
from localvolume.host.tree.beneath import LeadsOutside
from localvolume.host.tree.trees import make_directory, opened, pinned, sync_directory

PARENT_MODE: Final = 0o755


def split(place: str) -> tuple[str, str]:
    """The directory above a place, "" for the pool itself, and its name there."""
    above, _, name = place.rpartition("/")
    return above, name


@contextmanager
def above(pool: int, place: str) -> Iterator[int]:
    """The directory above a place; raises as `pinned`."""
    parent, _ = split(place)
    if parent:
        with pinned(pool, parent) as fd:
            yield fd
    else:
        yield pool


def check_parents(pool: int, directory: str, explained: Collection[str]) -> None:
    """See that what is on the way to a place are parents of volumes, and nothing else.

    `explained` are the parents of the places of other volumes. One that none explains must look
    like one: root's, and nothing but directories in it. Raises NotThisVolume, OSError.
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
            # Not empty, or not ours to judge: it harms nobody.
            return
