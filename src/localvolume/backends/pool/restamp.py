"""Rewrite a pool's records after its files were copied to another filesystem.

A record identifies its volume by the inode, which a copy changes: nothing is done with such a
volume. An administrator knows that it is a copy, and says so; nothing of ours does this by itself.

A file in `.localvolume` is written first and removed last. While it exists, no agent takes the pool
for proven; an agent that has the pool open closes it at its next look, which releases the lock. So
if this is killed, the pool is not used until it is called again. Records are written whole, one by
one, and each concerns only its own volume. Nothing else in the pool is changed.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final, Literal

from localvolume.backends.image import store
from localvolume.backends.model import OURS, NotThisVolume, Record
from localvolume.backends.pool import directories
from localvolume.backends.pool.layout import (
    MARKER,
    RECORDS,
    RESTAMPING,
    parents_of,
    parents_of_all,
    trash_name,
)
from localvolume.backends.pool.records import Records
from localvolume.backends.pool.root import DIRECTORY, PoolUnusable, check_owner, read_id
from localvolume.host.locks import lock_directory
from localvolume.host.mount.mounts import MountTable, read_mount_table
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.trees import has_name, opened, sync_directory

_PAUSE: Final = 0.2
# Filesystems of disks, not servers: a server that does not answer would block us for ever.
_ON_DISKS: Final = frozenset({"overlay", "tmpfs", "zfs"})


# Which volume each thing belongs to is a pure function of the pool's records and a look.
#
# A copy has the names of the original, and other inodes. So the place decides, unless what lies
# there has the identity in another volume's record: then somebody may have swapped the two.

Verdict = Literal[
    "fits",  # its record matches what lies there, or nothing need lie there
    "stamp",  # the record is to match it from now on
    "missing",  # nothing lies there
    "doubtful",  # it may be another volume's
    "left",  # it cannot be the volume
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What lies where a record says, in place or in the trash under the name `trash`.

    `identity` is as in `Record.inode`, 0 for nothing; `fault` is why it cannot be the volume.
    """

    identity: int = 0
    trash: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What becomes of one record: for `stamp`, `record` is what is written."""

    verdict: Verdict
    record: Record
    reason: str = ""


def judge(
    records: Mapping[str, Record], seen: Mapping[str, Seen], *, by_name: bool = False
) -> dict[str, Answer]:
    """What becomes of each record; `by_name`: somebody has said that the names are right."""
    lies, told = defaultdict(set), defaultdict(set)
    for name, record in records.items():
        lies[record.backend, seen[name].identity].add(name)
        if not _fits(record, seen[name]):
            told[record.backend, record.inode].add(name)
    answers = {}
    for name, record in records.items():
        found = seen[name]
        key = record.backend, found.identity
        twins, strays = lies[key] - {name}, told[key] - {name}
        answers[name] = _judge(record, found, twins, set() if by_name else strays)
    return _without_overlaps(answers)


def _judge(record: Record, found: Seen, twins: Collection[str], strays: Collection[str]) -> Answer:
    """`twins` are volumes with the same identity in place; `strays` have records that name it."""
    if found.fault:
        return Answer(verdict="left", record=record, reason=found.fault)
    if not found.identity:
        # What was being made is made again, and of what was removed nothing is left.
        if record.state in ("making", "removed"):
            return Answer(verdict="fits", record=record)
        return Answer(verdict="missing", record=record, reason="nothing lies where it should")
    if _fits(record, found):
        return Answer(verdict="fits", record=record)
    if twins:
        reason = f"the same lies where {min(twins)} should"
        return Answer(verdict="left", record=record, reason=reason)
    if strays:
        reason = f"the record of {min(strays)} is of what lies there"
        return Answer(verdict="doubtful", record=record, reason=reason)
    stamped = replace(record, inode=found.identity)
    if found.trash:
        # Its removal was begun, and its name in the trash is made from its former record.
        stamped = replace(stamped, state="removed", trash=found.trash)
    return Answer(verdict="stamp", record=stamped)


def _fits(record: Record, found: Seen) -> bool:
    return found.identity == record.inode and found.trash == record.trash


def _without_overlaps(answers: dict[str, Answer]) -> dict[str, Answer]:
    """Leave records alone whose volumes would share a place, or lie in one another's."""
    placed = [one.record for one in answers.values() if one.record.state != "removed"]
    parents = parents_of_all(placed)
    taken = {one.directory for one in placed if one.directory}
    for record in placed:
        path = record.directory
        if answers[record.name].verdict != "stamp":
            continue
        if path in parents or not taken.isdisjoint(parents_of(path)):
            reason = f"its directory {path!r} is in that of another volume, or holds it"
            answers[record.name] = Answer(verdict="left", record=record, reason=reason)
    return answers


class Refused(Exception):
    """Nothing is written; the text says why, and what helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A pool as it is: its id, what becomes of each record, and why others cannot be read.

    `begun`: somebody has begun to rewrite the records, and has not finished.
    """

    id: str
    answers: Mapping[str, Answer]
    unreadable: Mapping[str, str]
    begun: bool

    @property
    def to_do(self) -> list[Record]:
        """The records that are to be written."""
        return [one.record for one in self.answers.values() if one.verdict == "stamp"]


def survey(path: str, *, by_name: bool = False) -> Found:
    """Return what would be done, and write nothing. Raises Refused, PoolUnusable, OSError."""
    with _opened(path) as (pool, ours):
        return _look(pool, ours, path, by_name)


def restamp(path: str, *, by_name: bool = False, wait_seconds: float = 0.0) -> Found:
    """Make the pool's records match what lies in it now; returns what was found before.

    Waits for an agent that has it open. Raises Refused, PoolUnusable, OSError.
    """
    with _opened(path) as (pool, ours):
        # This is not the agents' lock: they have to release that.
        if not lock_directory(ours):
            raise Refused("its records are being written anew by another call right now")
        found = _look(pool, ours, path, by_name)
        if not found.to_do and not found.begun:
            return found
        _begin(ours)
        with ExitStack() as stack:
            try:
                stack.callback(os.close, _locked(ours, wait_seconds))
                # An agent that had it open may have made or removed something until now.
                found = replace(_look(pool, ours, path, by_name), begun=found.begun)
            except BaseException:
                if not found.begun:
                    _end(ours)
                raise
            with opened(ours, RECORDS) as directory:
                records = Records(directory, ours)
                for record in found.to_do:
                    records.write(record, durable=False)
                sync_directory(directory)
            _end(ours)
        return found


@contextmanager
def _opened(path: str) -> Iterator[tuple[int, int]]:
    with ExitStack() as stack:
        pool = os.open(path, DIRECTORY)
        stack.callback(os.close, pool)
        check_owner(pool, path)
        try:
            ours = stack.enter_context(opened(pool, OURS))
        except FileNotFoundError:
            raise Refused(f"there is no {OURS}: copy {OURS} with the volumes") from None
        check_owner(ours, f"{path}/{OURS}")
        yield pool, ours


def _look(pool: int, ours: int, path: str, by_name: bool) -> Found:
    pool_id = read_id(pool)
    if pool_id is None:
        raise Refused(f"there is no {OURS}/{MARKER}: copy {OURS} with the volumes")
    if others := _others(pool_id, ours, path):
        raise Refused(
            f"the same pool {pool_id} is at {', '.join(others)} too: unmount or remove one of them"
        )
    with opened(ours, RECORDS) as directory:
        records = Records(directory)
        records.refresh()
    if newer := records.newer():
        raise Refused(
            f"a later release wrote the records of {', '.join(sorted(newer))}: use that release"
        )
    known = records.all()
    seen = {name: _seen(pool, record) for name, record in known.items()}
    answers = judge(known, seen, by_name=by_name)
    doubtful = [name for name, one in answers.items() if one.verdict == "doubtful"]
    if doubtful:
        told = "; ".join(f"{name}: {answers[name].reason}" for name in sorted(doubtful))
        raise Refused(
            f"volumes may have been swapped ({told}): look into them, and where each name is"
            " right say so with --by-name"
        )
    return Found(
        id=pool_id,
        answers=answers,
        unreadable=records.unreadable(),
        begun=has_name(ours, RESTAMPING),
    )


def _seen(pool: int, record: Record) -> Seen:
    for path, trash in _places(record):
        try:
            identity = _identity(pool, path, record)
        except FileNotFoundError:
            continue
        except (NotThisVolume, OSError) as error:
            return Seen(fault=str(error))
        if identity <= 0:
            return Seen(fault=f"what lies at {path} is no subvolume")
        return Seen(identity=identity, trash=trash)
    return Seen()


def _places(record: Record) -> list[tuple[str, str]]:
    """Where it may lie, with its name in the trash, or "" in its own place."""
    if record.state == "removed":
        return [(directories.in_trash(record), record.trash)]
    image = f"{store.IMAGES_PLACE}/{store.image_name(record)}"
    path = record.directory or image
    if record.state == "making":
        return [(path, "")]
    trash = trash_name(record)
    return [(path, ""), (f"{store.TRASH_PLACE}/{trash}", trash)]


def _identity(pool: int, path: str, record: Record) -> int:
    """The identity as in `Record.inode`; raises FileNotFoundError, NotThisVolume, OSError."""
    with ExitStack() as stack:
        if record.backend == "image":
            parent, _, name = path.rpartition("/")
            fd = stack.enter_context(store.the_image(pool, parent, name, None))
        else:
            fd = stack.enter_context(directories.the_volume(pool, path, record, None))
        if record.backend == "btrfs":
            from localvolume.backends.btrfs.backend import BtrfsBackend

            return BtrfsBackend().identity(fd)
        return directories.inode_of(fd)


# --- the other pools of this node -------------------------------------------------------------


def _others(pool_id: str, ours: int, path: str) -> list[str]:
    """Where else on this node a pool with that id is, as far as can be seen from here."""
    table = read_mount_table()
    here = os.fstat(ours)
    found = set()
    for place in _candidates(table, os.path.realpath(path)):
        with (
            suppress(OSError, PoolUnusable),
            closed_after(os.open(place, DIRECTORY | os.O_NOFOLLOW)) as pool,
        ):
            if read_id(pool) != pool_id:
                continue
            # Every pool belongs to root: what a tenant writes into its volume is no pool.
            check_owner(pool, place)
            with opened(pool, OURS) as other:
                there = os.fstat(other)
            if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
                found.add(place)
    return sorted(found)


def _candidates(table: MountTable, path: str) -> set[str]:
    """Each mount, the directories directly in it, and this pool's path within its own mount."""
    holding = table.holding(path)
    mount_point = holding.mount_point.rstrip("/") if holding is not None else ""
    inner = path[len(mount_point) :].strip("/")
    tops = {
        mount.mount_point
        for mount in table
        if mount.source.startswith("/dev/") or mount.fs_type in _ON_DISKS
    }
    found = set(tops)
    for top in {*tops, os.path.dirname(path)}:
        if inner:
            found.add(os.path.join(top, inner))
        with suppress(OSError), os.scandir(top) as entries:
            found.update(one.path for one in entries if one.is_dir(follow_symlinks=False))
    return found - ({mount.mount_point for mount in table} - tops)


# --- the file that says that it is being done -------------------------------------------------


def _begin(ours: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(RESTAMPING, flags, 0o600, dir_fd=ours))
    sync_directory(ours)


def _end(ours: int) -> None:
    os.unlink(RESTAMPING, dir_fd=ours)
    sync_directory(ours)


def _locked(ours: int, wait_seconds: float) -> int:
    """The lock that agents hold while they work in it, as an open file; raises Refused, OSError."""
    fd = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=ours)
    deadline = time.monotonic() + wait_seconds
    while not lock_directory(fd):
        if time.monotonic() > deadline:
            os.close(fd)
            raise Refused(
                "an agent works in it still: call it again later, or take the pool out of the"
                " configuration meanwhile"
            )
        time.sleep(_PAUSE)
    return fd
