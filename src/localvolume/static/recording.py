"""Where the records of prepared volumes are kept, and how they are read and written.

A filesystem's record is an attribute of its own root, where no tenant sees it. For a device, or a
filesystem that takes no such attribute, it is a file in one directory of the node, found by the
identity in it: more may be known of a disk later than when it was written. Every call may block.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

import msgspec

from localvolume.host.block.identity import is_attached
from localvolume.host.filesystem.rootstate import RootState, read_root, restore_root
from localvolume.host.filesystem.volumenotes import (
    AnotherMount,
    NoNotes,
    open_root,
    read_note,
    remove_note,
    write_note,
)
from localvolume.host.locks import lock_directory
from localvolume.host.tree import trees
from localvolume.static.model import Entry
from localvolume.volumes.identity import Identity, compare, may_share_data, tells_apart
from localvolume.volumes.record import (
    BadRecord,
    Record,
    Recorded,
    Unreadable,
    decoded,
    encoded,
    with_identity,
)

_MOST: Final = 16 << 10
"""The most bytes read of a record's file; a record has less than one kilobyte."""

_PARTS: Final = ("partUuid", "partStart", "loopOffset")
"""The keys that say that only a part of a disk is meant."""

_SUFFIX: Final = ".json"
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class NotRecorded(Exception):
    """The record could not be written: try again later, and do nothing that relies on it."""


class Records:
    """The records of this node; `directory` is for those that lie on no volume (None: no place)."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory

    def read(self, entry: Entry) -> Recorded:
        """What is on record of the volume there; never raises OSError."""
        try:
            if entry.kind == "filesystem":
                with _root(entry) as fd:
                    return self._read_filesystem(fd, entry.identity)
            return self._read_file(entry.identity)
        except BadRecord as error:
            return Unreadable(str(error))
        except (OSError, AnotherMount) as error:
            return Unreadable(_text(error))

    @contextmanager
    def locked(self, entry: Entry) -> Iterator[None]:
        """Keep other agents of the node from changing the record meanwhile. Raises NotRecorded.

        For a filesystem, its root is locked, as for cleaning. This is not for a volume that a
        tenant has, who could lock it too. For a device, the directory of the records is locked.
        """
        with ExitStack() as held:
            try:
                if entry.kind == "filesystem":
                    fd = held.enter_context(_root(entry))
                elif self._directory is not None:
                    os.makedirs(self._directory, mode=0o700, exist_ok=True)
                    fd = held.enter_context(_opened(self._directory))
                else:
                    fd = None
            except (OSError, AnotherMount) as error:
                raise NotRecorded(f"{entry.path}: {_text(error)}") from error
            if fd is not None and not lock_directory(fd):
                raise NotRecorded(f"{entry.path}: another process has its record locked")
            yield

    def root_of(self, entry: Entry) -> RootState | None:
        """How the filesystem's root is now, None for a device. Raises NotRecorded."""
        if entry.kind != "filesystem":
            return None
        try:
            with _root(entry) as fd:
                return read_root(fd)
        except (OSError, AnotherMount) as error:
            raise NotRecorded(f"{entry.path}: {_text(error)}") from error

    def restore_root(self, entry: Entry, state: RootState) -> None:
        """Give the filesystem's root its first state back. Raises NotRecorded."""
        try:
            with _root(entry) as fd:
                restore_root(fd, state)
        except (OSError, AnotherMount) as error:
            text = f"{entry.path}: its root cannot be set up as it was: {_text(error)}"
            raise NotRecorded(text) from error

    def write(self, entry: Entry, record: Record) -> bool:
        """Write the record to disk; False if there is no place for it. Raises NotRecorded."""
        try:
            if entry.kind == "filesystem":
                with _root(entry) as fd, suppress(NoNotes):
                    _write_note(fd, with_identity(record, None))
                    return True
            if self._directory is None or not _is_findable(entry.identity):
                return False
            self._write_file(self._directory, with_identity(record, entry.identity))
        except (OSError, AnotherMount, BadRecord) as error:
            raise NotRecorded(f"{entry.path}: its record is not written: {_text(error)}") from error
        return True

    def forget(self, entry: Entry) -> Recorded:
        """Remove what is on record, readable or not, and return it. Raises OSError, AnotherMount.

        If nothing tells records apart, all that may be of the volume go. A file that is no record
        may be another volume's: then all stay, and BadRecord is raised.
        """
        found = self.read(entry)
        removed = False
        if entry.kind == "filesystem":
            with _root(entry) as fd:
                removed = remove_note(fd)
        if not removed and self._directory is not None and found is not None:
            with _opened(self._directory) as directory:
                names = [
                    name
                    for name, record in _files(directory)
                    if _is_of(record, entry.identity) or _may_be_of(record, entry.identity)
                ]
                for name in names:
                    os.unlink(name, dir_fd=directory)
                trees.sync_directory(directory)
        return found

    def _read_filesystem(self, fd: int, identity: Identity) -> Recorded:
        try:
            note = read_note(fd)
        except NoNotes:
            return self._read_file(identity)
        if note is not None:
            return decoded(note)
        elsewhere = self._read_file(identity)
        return None if elsewhere == "nowhere" else elsewhere

    def _read_file(self, identity: Identity) -> Recorded:
        if self._directory is None or not _is_findable(identity):
            return "nowhere"
        try:
            with _opened(self._directory) as directory:
                records = [record for _, record in _files(directory)]
        except FileNotFoundError:
            return None  # The directory is made with the first record.
        own = [record for record in records if _is_of(record, identity)]
        if len(own) == 1:
            return own[0]
        if own:
            return Unreadable("there are several of this very disk", tuple(own))
        if found := [record for record in records if _may_be_of(record, identity)]:
            # The disk was numbered anew, or what told it apart cannot be read now.
            reason = compare(found[0].identity or {}, identity).reason
            text = f"it may be the one of generation {found[0].generation}: {reason}"
            return Unreadable(text, tuple(found))
        return None

    def _write_file(self, path: str, record: Record) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)
        identity = record.identity or {}
        with _opened(path) as directory:
            names = [
                name
                for name, other in _files(directory)
                if _is_of(other, identity) or other.generation == record.generation
            ]
            name = names[0] if names else f"{secrets.token_hex(16)}{_SUFFIX}"
            staged = trees.stage_file(directory, encoded(record))
            trees.put_staged(directory, staged, name)
            trees.sync_directory(directory)


def _is_findable(identity: Identity) -> bool:
    """Whether the identity fits only one volume, at least in this boot."""
    return tells_apart(identity) or "diskSeq" in identity


def _is_of(record: Record, identity: Identity) -> bool:
    """Whether the record is this volume's; a partition's identity contains that of its disk."""
    recorded = record.identity or {}
    alike = all((key in recorded) == (key in identity) for key in _PARTS)
    return alike and compare(recorded, identity).verdict == "same"


def _may_be_of(record: Record, identity: Identity) -> bool:
    """Whether the record may be this volume's: its own disk is not attached elsewhere."""
    recorded = record.identity or {}
    verdict = compare(recorded, identity).verdict
    if verdict == "renumbered":
        return not is_attached(recorded.get("bootId", ""), recorded.get("diskSeq", ""))
    return verdict == "unknown" and may_share_data(recorded, identity)


def _files(directory: int) -> Iterator[tuple[str, Record]]:
    """The records of an open directory. Raises BadRecord for a file that is none, and OSError."""
    for name in sorted(trees.list_names(directory)):
        if not name.endswith(_SUFFIX):
            continue  # A file that was never written completely.
        try:
            yield name, decoded(trees.read_file(directory, name, _MOST))
        except FileNotFoundError:
            continue
        except BadRecord as error:
            raise BadRecord(f"{name} beside it: {error}") from error


def _write_note(fd: int, record: Record) -> None:
    """Without the receipt if there is no room for it: that much less is told, and nothing waits."""
    try:
        write_note(fd, encoded(record))
    except OSError as error:
        if error.errno != errno.ENOSPC or not record.cleaned:
            raise
        write_note(fd, encoded(msgspec.structs.replace(record, cleaned="")))


@contextmanager
def _root(entry: Entry) -> Iterator[int]:
    fd = open_root(entry.path, entry.mount_id)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, _DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def _text(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
