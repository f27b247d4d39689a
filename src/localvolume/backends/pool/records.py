"""The records of a pool: one file for each volume, checked when read and written whole."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from typing import Final

import msgspec

from localvolume.backends.model import OURS, Impossible, Record
from localvolume.backends.pool.layout import RECORDS, fault_of_directory, fault_of_volume_name
from localvolume.host.syscalls import closed_after, write_at
from localvolume.host.tree.trees import (
    TEMPORARY,
    list_names,
    opened,
    put_staged,
    read_file,
    stage_file,
    sync_directory,
)

VERSION: Final = 1
_SUFFIX: Final = ".json"
# A record has names, numbers and a path of at most 2 KiB: a much larger file is none.
_MOST_BYTES: Final = 1 << 16

# A file kept in reserve, so that a record can be written on a full filesystem.
#
# Recording a removal takes a file with its block and inode. The reserve has both already: it is
# overwritten in place and renamed to the record, which frees the file of the former record. So
# removing frees space, however full the disk is. (If each write takes new blocks, as on btrfs, the
# filesystem itself keeps some for that.)

_SPARE: Final = "spare"
_SPARE_BYTES: Final = 4096
"""What a record takes on most disks: the file that is freed makes room for the next reserve.
No record with a path that people can read is longer."""

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_WRITE: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC

Stamp = tuple[int, int, int]


class _Version(msgspec.Struct, frozen=True):
    version: int


class _Written(msgspec.Struct, frozen=True):
    version: int
    record: Record


# Made on import: several threads read pools, and msgspec crashes if two of them are the first to
# decode into the same dataclass.
_decode_version: Final = msgspec.json.Decoder(_Version).decode
_decode_written: Final = msgspec.json.Decoder(_Written).decode


class UnreadableRecord(Exception):
    """The record cannot be read: leave its volume alone."""


class NewerRecord(UnreadableRecord):
    """A later release wrote the record."""


def read_records(pool: int) -> Records:
    """The current records of a pool, which need not be open anywhere; raises OSError."""
    with opened(pool, f"{OURS}/{RECORDS}") as directory:
        records = Records(directory)
        records.refresh()
    return records


def encode(record: Record) -> bytes:
    """The bytes of a record's file."""
    return msgspec.json.format(msgspec.json.encode(_Written(VERSION, record)), indent=1)


def decode(name: str, content: bytes) -> Record:
    """Read the record of the volume `name`; raises UnreadableRecord for anything else."""
    try:
        version = _decode_version(content).version
        if version != VERSION:
            kind = NewerRecord if version > VERSION else UnreadableRecord
            raise kind(f"it is of version {version}, and {VERSION} is known here")
        record = _decode_written(content).record
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise UnreadableRecord(str(error)) from error
    if record.name != name:
        raise UnreadableRecord(f"it is of another volume, {record.name!r}")
    if (fault := fault_of_volume_name(name)) is not None:
        raise UnreadableRecord(f"its name {fault}")
    if (record.backend == "image") != (not record.directory):
        raise UnreadableRecord(f"its directory {record.directory!r} does not fit {record.backend}")
    if record.directory and (fault := fault_of_directory(record.directory)) is not None:
        raise UnreadableRecord(f"its directory {record.directory!r} {fault}")
    if record.trash and not _is_trash_of(record.trash, name):
        raise UnreadableRecord(f"its place in the trash, {record.trash!r}, is not its own")
    if (record.state == "removed") != bool(record.trash):
        raise UnreadableRecord(f"it is {record.state}, and in the trash it is {record.trash!r}")
    if min(record.size_bytes, record.project, record.inode, record.uid, record.gid) < 0:
        raise UnreadableRecord("it has a number below zero")
    return record


def _is_trash_of(trash: str, name: str) -> bool:
    token = trash.removeprefix(f"{name}.")
    return token != trash and len(token) == 8 and not token.strip("0123456789abcdef")


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns


class Records:
    """All records of an open pool, kept in memory; safe to use from several threads.

    `directory` is a descriptor of `.localvolume/records`, `ours` one of `.localvolume`, for the
    reserve (None: without a reserve). The caller keeps and closes both.
    """

    def __init__(self, directory: int, ours: int | None = None) -> None:
        self._directory = directory
        self._ours = ours
        self._lock = threading.Lock()
        self._stamps: dict[str, Stamp] = {}
        self._readable: dict[str, Record] = {}
        self._unreadable: dict[str, str] = {}
        self._newer: set[str] = set()

    def clean(self) -> None:
        """Remove what interrupted writes left; only while nobody writes. Raises OSError."""
        for name in list_names(self._directory):
            if name.startswith(TEMPORARY):
                os.unlink(name, dir_fd=self._directory)
        if self._ours is not None:
            _stock(self._ours)

    def refresh(self) -> None:
        """Read what has changed on disk since; raises OSError."""
        with self._lock:
            names = [name for name in list_names(self._directory) if not name.startswith(TEMPORARY)]
            for gone in self._stamps.keys() - names:
                self._drop(gone)
            for name in names:
                self._look(name)

    def all(self) -> dict[str, Record]:
        """Every readable record, by the name of its volume."""
        with self._lock:
            return dict(self._readable)

    def unreadable(self) -> dict[str, str]:
        """Why each of the others cannot be read, by the name of its volume."""
        with self._lock:
            return dict(self._unreadable)

    def newer(self) -> set[str]:
        """The unreadable ones that a later release wrote, by the name of the volume."""
        with self._lock:
            return set(self._newer)

    def get(self, name: str) -> Record | None:
        """The record of one volume, None if there is none.

        Raises UnreadableRecord if there is one that cannot be read.
        """
        with self._lock:
            if name in self._unreadable:
                raise UnreadableRecord(f"the record of {name}: {self._unreadable[name]}")
            return self._readable.get(name)

    def write(self, record: Record, *, durable: bool = True, reserved: bool = False) -> None:
        """Write a record. `durable`: it is on disk when this returns. `reserved`: use the reserve
        if the filesystem is full.

        Raises Impossible for a name that no file can have, OSError; the record is unchanged then.
        """
        if (fault := fault_of_volume_name(record.name)) is not None:
            raise Impossible(f"the volume's name {fault}")
        file = record.name + _SUFFIX
        content = encode(record)
        temporary = None
        try:
            temporary = stage_file(self._directory, content)
        except OSError as error:
            if not reserved or self._ours is None or error.errno not in FULL:
                raise
        with self._lock:
            if temporary is not None:
                put_staged(self._directory, temporary, file)
            elif self._ours is not None:
                _take(self._ours, content, self._directory, file)
            self._drop(file)
            found = os.stat(file, dir_fd=self._directory, follow_symlinks=False)
            self._stamps[file] = _stamp(found)
            self._readable[record.name] = record
        if durable:
            sync_directory(self._directory)
        if temporary is None:
            # What was freed counts as free only after the sync.
            self._restock()

    def delete(self, name: str) -> None:
        """Remove the record of a volume, if there is one. Raises OSError."""
        file = name + _SUFFIX
        with self._lock:
            with suppress(FileNotFoundError):
                os.unlink(file, dir_fd=self._directory)
            self._drop(file)
        sync_directory(self._directory)
        self._restock()

    def _restock(self) -> None:
        if self._ours is not None:
            # While one fills the reserve, nobody takes it: he would write over the record.
            with self._lock:
                _stock(self._ours)

    def _look(self, file: str) -> None:
        try:
            found = os.stat(file, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            self._drop(file)
            return
        stamp = _stamp(found)
        if self._stamps.get(file) == stamp:
            return
        self._drop(file)
        self._stamps[file] = stamp
        name = file.removesuffix(_SUFFIX)
        if name == file:
            self._unreadable[name] = "it is no record by its name"
            return
        try:
            self._readable[name] = decode(name, read_file(self._directory, file, _MOST_BYTES))
        except (UnreadableRecord, OSError) as error:
            self._unreadable[name] = str(error)
            if isinstance(error, NewerRecord):
                self._newer.add(name)

    def _drop(self, file: str) -> None:
        self._stamps.pop(file, None)
        self._readable.pop(file.removesuffix(_SUFFIX), None)
        self._unreadable.pop(file.removesuffix(_SUFFIX), None)
        self._newer.discard(file.removesuffix(_SUFFIX))


def _stock(ours: int) -> None:
    """Make sure that `.localvolume` has the reserve, if there is space for it."""
    flags = _WRITE | os.O_CREAT
    with suppress(OSError), closed_after(os.open(_SPARE, flags, 0o600, dir_fd=ours)) as fd:
        if os.fstat(fd).st_size < _SPARE_BYTES:
            _fill(fd, b"")


def _take(ours: int, content: bytes, records: int, file: str) -> None:
    """Write the content into the reserve, and rename that to a file in `records`.

    The content is padded with newlines, which mean nothing in a record. Raises OSError (ENOSPC if
    the reserve has been used, and there has been no space for another since).
    """
    try:
        fd = os.open(_SPARE, _WRITE, dir_fd=ours)
    except FileNotFoundError as error:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file) from error
    with closed_after(fd):
        if len(content) > _SPARE_BYTES or os.fstat(fd).st_size < _SPARE_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file)
        _fill(fd, content)
    os.rename(_SPARE, file, src_dir_fd=ours, dst_dir_fd=records)


def _fill(fd: int, content: bytes) -> None:
    write_at(fd, content.ljust(_SPARE_BYTES, b"\n"), 0)
    os.fsync(fd)
