"""Making a volume in a pool: its place, its record, itself, in an order that may crash."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from localvolume.backends.directory.backend import DirectoryBackend
from localvolume.backends.directory.projects import ProjectTaken
from localvolume.backends.model import Backend, BackendFailed, Impossible, NotThisVolume, Record
from localvolume.backends.pool import directories
from localvolume.backends.pool.directories import above, check_parents, remove_parents, split
from localvolume.backends.pool.layout import (
    check_directory,
    fault_of_volume_name,
    overlapping,
    parents_of_all,
)
from localvolume.backends.pool.session import OpenPool

MakeContent = Callable[[int, str, Record], Record]
"""Makes a volume: the pool's descriptor, its path and the record; returns it completed."""


def is_placed(record: Record) -> bool:
    """Whether it is a directory of its own below the pool, which the pool puts into place."""
    return record.backend != "image"


def is_begun(known: Record, record: Record) -> bool:
    """Whether a half-made volume is the one that is asked for."""
    asked = _fresh(record)
    if known.cut_at:
        # What it holds was only known then.
        asked = replace(asked, holds_bytes=known.holds_bytes)
    return replace(known, inode=0, project=0, cut_at=0) == asked


def _fresh(record: Record) -> Record:
    return replace(record, state="making", inode=0, project=0, cut_at=0, trash="", adopted=False)


def begin(using: OpenPool, backend: Backend, record: Record) -> Record:
    """Reserve a place and a quota, and record that the volume is being made.

    Raises NotThisVolume if something lies in its place, Impossible, OSError.
    """
    if (fault := fault_of_volume_name(record.name)) is not None:
        raise Impossible(f"the volume's name {fault}")
    if record.backend != backend.name:
        raise Impossible(f"{record.backend} volumes are not made in a pool of {backend.name}")
    record = _fresh(record)
    with using.reserving:
        others = using.others(record.name)
        if is_placed(record):
            check_directory(record.directory)
            _check_place(using, record.directory, others)
        elif record.directory:
            raise Impossible("an image has no directory of its own")
        if isinstance(backend, DirectoryBackend):
            # The project is recorded before it is used.
            taken = using.neighbours.projects()
            record = replace(record, project=backend.free_project(using.root.pool, record, taken))
        using.reserved[record.name] = record
    try:
        using.records.write(record, durable=False)
    finally:
        using.reserved.pop(record.name, None)
    return record


def _check_place(using: OpenPool, directory: str, others: Mapping[str, Record]) -> None:
    """Check that nothing is there, and that what is on the way belongs to the pool."""
    if (other := overlapping(directory, others.values())) is not None:
        raise NotThisVolume(f"{directory} is, or is in, or holds the volume {other.name}")
    if directory in using.records.unreadable():
        raise NotThisVolume(f"{directory} may be of a volume whose record cannot be read")
    check_parents(using.root.pool, directory, _needed_parents(others.values()))
    with suppress(FileNotFoundError), above(using.root.pool, directory) as parent:
        os.stat(split(directory)[1], dir_fd=parent, follow_symlinks=False)
        raise NotThisVolume(f"{directory} is there already, and no volume here explains it")


def complete(using: OpenPool, backend: Backend, record: Record, make: MakeContent) -> Record:
    """Make what was begun, put it into its place and record that; raises as `begin`.

    `make` is the backend's `make`, or its `copy` with an origin.
    """
    pool, path = using.root.pool, using.root.path
    if not is_placed(record):
        record = make(pool, path, record)
    elif not is_in_place(pool, record, backend.identity):
        try:
            record = make(pool, path, record)
        except ProjectTaken:
            # The next attempt gets another project.
            unmake(using, backend, record)
            raise
        # Before it is put into its place: from now on we recognize what lies there as ours.
        using.records.write(record, durable=False)
        directories.put_into_place(pool, record, backend.identity)
    record = replace(record, state="made")
    using.records.write(record)
    return record


def unmake(using: OpenPool, backend: Backend, record: Record) -> None:
    """Remove all that `begin` and `complete` may have left, the record last.

    Raises BackendFailed if somebody has written to it, OSError.
    """
    pool, path = using.root.pool, using.root.path
    if is_in_place(pool, record, backend.identity):
        # Remove what an earlier attempt left; then move the volume itself out of everybody's reach.
        backend.unmake(pool, path, record)
        directories.back_to_making(pool, path, record, backend.identity)
    backend.unmake(pool, path, record)
    tidy(using, record)
    using.records.delete(record.name)


def take_away(using: OpenPool, backend: Backend, known: Record) -> None:
    """As `unmake`, for a complete volume: it stays complete if it is in use after all."""
    begun = replace(known, state="making")
    if begun != known:
        # From here on, what a crash leaves may be taken away, or made again.
        using.records.write(begun)
    try:
        unmake(using, backend, begun)
    except BackendFailed:
        if _is_still_there(using.root.pool, begun, backend.identity):
            using.records.write(known)
        raise


def _is_still_there(pool: int, record: Record, identity: Callable[[int], int]) -> bool:
    """Whether the volume itself is where it was made complete; raises OSError."""
    if is_placed(record):
        return is_in_place(pool, record, identity)
    # Imported here: an agent loads only the backends that it has pools for.
    from localvolume.backends.image import store

    try:
        path, name = store.IMAGES_PLACE, store.image_name(record)
        return store.is_there(pool, path, name, record)
    except NotThisVolume:
        return False


def tidy(using: OpenPool, record: Record) -> None:
    """Remove the empty directories that a volume has left above it, while its record has them."""
    if "/" in record.directory:
        # Volumes that need them have a record or a reservation before they are made.
        with using.reserving:
            needed = _needed_parents(using.others(record.name).values())
            remove_parents(using.root.pool, record.directory, needed)


def _needed_parents(others: Iterable[Record]) -> set[str]:
    """The directories above the places of volumes; removed volumes need theirs no more."""
    return parents_of_all(one for one in others if one.state != "removed")


def is_in_place(pool: int, record: Record, identity: Callable[[int], int]) -> bool:
    """Whether the volume itself, and nothing else, lies in its place; raises OSError."""
    if not record.inode or not is_placed(record):
        return False
    try:
        with directories.the_volume(pool, record.directory, record, None) as fd:
            return identity(fd) == record.inode
    except (FileNotFoundError, NotThisVolume):
        # If something else lies there, put_into_place() will raise.
        return False
