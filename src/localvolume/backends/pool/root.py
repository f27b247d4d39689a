"""The root directory of a pool: opened, proved to be the right one, and locked against others."""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Collection
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

import msgspec

from localvolume.backends.model import OURS
from localvolume.backends.pool.layout import IMAGES, MAKING, MARKER, RECORDS, RESTAMPING, TRASH
from localvolume.config.pools import PoolConfig
from localvolume.host.locks import lock_directory
from localvolume.host.mount.mounts import Mount, MountTable, read_mount_table
from localvolume.host.syscalls import fstatfs
from localvolume.host.tree.trees import (
    TEMPORARY,
    holds_anything,
    list_names,
    make_directory,
    opened,
    pinned,
    put_staged,
    read_file,
    stage_file,
    sync_directory,
)

VERSION: Final = 1
_MOST_BYTES: Final = 1 << 16
_PARTS: Final = (RECORDS, MAKING, IMAGES, TRASH)
DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class PoolUnusable(Exception):
    """Nothing may be done in the pool; the text says why, and what helps."""


class PoolTaken(PoolUnusable):
    """Another agent of this node works in the pool, and does what is to be done."""


class _Marker(msgspec.Struct, frozen=True):
    version: int
    id: str
    backend: str


# Made on import, as it is first needed in several threads at once (records.py).
_decode_marker: Final = msgspec.json.Decoder(_Marker).decode

_LEAST_INODES: Final = 16
"""What a volume takes at least, with its record, its directories and a tenant's first files."""


class PoolRoot:
    """An open pool. Everything in it is reached from `pool`, a descriptor of its directory.

    `path` is where this process sees it, without links. `ours` and `records` are descriptors of
    `.localvolume` and its records. All stay open, and the lock held, until `close`.
    """

    def __init__(
        self,
        config: PoolConfig,
        known_ids: Collection[str],
        known_places: Collection[str] = (),
        missing: Collection[str] = (),
    ) -> None:
        """Open and prove the pool, or make one if there is none and nobody knows of one.

        `known_places` are where volumes of older provisioners should lie, and `missing` are volumes
        that may lie in any pool. Raises PoolUnusable, OSError.
        """
        with ExitStack() as opening:
            self.pool = os.open(config.mount_dir, DIRECTORY)
            opening.callback(os.close, self.pool)
            self.path = os.readlink(f"/proc/self/fd/{self.pool}")
            self.check(config)
            check_owner(self.pool, config.host_dir)
            marker = _marker(self.pool, config, known_ids, known_places, missing)
            self.ours = os.open(OURS, DIRECTORY | os.O_NOFOLLOW, dir_fd=self.pool)
            opening.callback(os.close, self.ours)
            check_owner(self.ours, f"{config.host_dir}/{OURS}")
            os.fchmod(self.ours, 0o700)
            self._lock = os.open(
                MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.ours
            )
            opening.callback(os.close, self._lock)
            if not lock_directory(self._lock):
                raise PoolTaken("another agent works in it; this one waits until it has ended")
            self.id = marker.id
            for part in _PARTS:
                make_directory(self.ours, part, 0o700)
            self.records = os.open(RECORDS, DIRECTORY | os.O_NOFOLLOW, dir_fd=self.ours)
            opening.callback(os.close, self.records)
            self._closing = opening.pop_all()

    def check(self, config: PoolConfig) -> None:
        """Check that the configured path still leads to this directory, mounted and writable.

        Raises PoolUnusable, OSError.
        """
        here, there = os.fstat(self.pool), os.stat(config.mount_dir)
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise PoolUnusable("another filesystem or directory has taken its place")
        _check_filesystem(self.pool, self.path, config)
        # Checked each time: once an agent sees that file, restamping can have the pool.
        _check_settled(self.pool, config.host_dir)

    def space(self) -> Space:
        """See ``space_of``."""
        return space_of(self.pool)

    def mount(self) -> Mount | None:
        """The mount that it lies in; None if we see none; raises OSError, ValueError."""
        return read_mount_table().holding(self.path)

    def close(self) -> None:
        """Close the pool and release its lock; harmless if done before."""
        self._closing.close()


class Space(NamedTuple):
    """Bytes of a filesystem: all that are not kept for root, those of them that can be written now,
    and those that are written."""

    total: int
    available: int
    used: int


def space_of(pool: int) -> Space:
    """The space of an open pool's filesystem; raises OSError.

    Without free inodes nothing can be written, however many blocks are free.
    """
    found = fstatfs(pool)
    kept = max(0, found.free - found.available)
    full = found.inodes and found.inodes_free < _LEAST_INODES
    return Space(
        total=(found.blocks - kept) * found.block_size,
        available=0 if full else found.available * found.block_size,
        used=max(0, found.blocks - found.free) * found.block_size,
    )


def see_usable(
    pool: int,
    path: str,
    config: PoolConfig,
    known_ids: Collection[str] = (),
    known_places: Collection[str] = (),
    missing: Collection[str] = (),
) -> str:
    """Check that an agent could open the directory as that pool, and write nothing.

    Returns its id, "" for one that the agent would make. What is known is as for ``PoolRoot``.
    Raises PoolUnusable, OSError.
    """
    _check_filesystem(pool, path, config)
    check_owner(pool, config.host_dir)
    _check_settled(pool, config.host_dir)
    marker = _read_marker(pool)
    _check_known(pool, marker, known_ids, known_places, missing)
    if marker is None:
        with suppress(FileNotFoundError), opened(pool, OURS) as ours:
            check_owner(ours, f"{config.host_dir}/{OURS}")
            _check_unused(ours)
        return ""
    _check_backend(marker, config)
    return marker.id


def _check_settled(pool: int, path: str) -> None:
    with suppress(FileNotFoundError):
        os.stat(f"{OURS}/{RESTAMPING}", dir_fd=pool, follow_symlinks=False)
        raise PoolUnusable(
            f"its records are being written anew: where that was ended, call `localvolume restamp"
            f" {path}` again"
        )


def _check_filesystem(pool: int, path: str, config: PoolConfig) -> None:
    if os.fstatvfs(pool).f_flag & os.ST_RDONLY:
        raise PoolUnusable("its filesystem is mounted read-only")
    if config.must_be_mounted:
        why_not = why_not_mounted(read_mount_table(), path, config.host_dir)
        if why_not is not None:
            raise PoolUnusable(why_not)


def why_not_mounted(table: MountTable, path: str, host_dir: str) -> str | None:
    """Why a pool at `path` is not on a filesystem of its own; None if it is.

    In a container everything is below some mount. What lies on the host's root filesystem is
    recognized there by its path within the filesystem, which is the path on the host.
    """
    remedy = "mount its disk, or set mustBeMounted: false"
    holding = table.holding(path)
    if holding is None or holding.mount_point == "/":
        return f"nothing is mounted at or above it but the root filesystem: {remedy}"
    root = table.at("/")
    inner = holding.root.rstrip("/") + path[len(holding.mount_point.rstrip("/")) :]
    if (root is None or root.device != holding.device) and inner.endswith(host_dir):
        return f"it lies on the host's root filesystem: {remedy}"
    return None


def check_owner(fd: int, path: str) -> None:
    """Check that only root can put links and directories there.

    Raises PoolUnusable, OSError.
    """
    found = os.fstat(fd)
    if found.st_uid not in (0, os.geteuid()):
        raise PoolUnusable(
            f"{path} belongs to user {found.st_uid}, who could swap volumes: chown 0:0 {path}"
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PoolUnusable(
            f"others than root may write to {path} (mode {stat.S_IMODE(found.st_mode):04o}) and"
            f" could swap volumes: chmod go-w {path}"
        )


def _marker(
    pool: int,
    config: PoolConfig,
    known_ids: Collection[str],
    known_places: Collection[str],
    missing: Collection[str],
) -> _Marker:
    """Read the pool's marker; write one if there is none and there may be one."""
    marker = _read_marker(pool)
    _check_known(pool, marker, known_ids, known_places, missing)
    if marker is None:
        _write_marker(pool, config)
        if (marker := _read_marker(pool)) is None:
            raise PoolUnusable(f"{OURS}/{MARKER} was written and is gone again")
    _check_backend(marker, config)
    return marker


def _check_known(
    pool: int,
    marker: _Marker | None,
    known_ids: Collection[str],
    known_places: Collection[str],
    missing: Collection[str],
) -> None:
    """Check that what lies there can be the pool that objects know of. Raises PoolUnusable."""
    if marker is not None:
        if known_ids and marker.id not in known_ids:
            raise PoolUnusable(
                f"this is the pool {marker.id}, and PersistentVolumes name"
                f" {', '.join(sorted(known_ids))}: its disk is not mounted, or this is another disk"
            )
        return
    if known_ids:
        raise PoolUnusable(
            "PersistentVolumes name a pool here, and there is none: its disk is not mounted,"
            " or this is another disk"
        )
    if known_places and not any(_is_there(pool, path) for path in known_places):
        raise PoolUnusable(
            "PersistentVolumes of an older provisioner lie here, and nothing is where they"
            " should be: its disk is not mounted, or this is another disk"
        )
    if missing:
        raise PoolUnusable(
            f"there is no pool here, and no pool has the volume of the handle {min(missing)},"
            " which a PersistentVolume is of: its disk is not mounted, or this is another disk"
        )


def _check_backend(marker: _Marker, config: PoolConfig) -> None:
    if marker.backend != config.backend:
        raise PoolUnusable(
            f"its volumes are of the backend {marker.backend}, and {config.backend} is configured"
        )


def _is_there(pool: int, path: str) -> bool:
    """Whether anything is on the way to a place; what it is, is checked when it is opened."""
    with suppress(OSError):
        os.stat(path.partition("/")[0], dir_fd=pool, follow_symlinks=False)
        return True
    return False


def read_id(pool: int) -> str | None:
    """The id of the pool in that directory; None if it is none; raises PoolUnusable, OSError."""
    marker = _read_marker(pool)
    return None if marker is None else marker.id


def _read_marker(pool: int) -> _Marker | None:
    try:
        with opened(pool, OURS) as ours:
            content = read_file(ours, MARKER, _MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV, errno.ENOTDIR):
            raise PoolUnusable(f"{OURS} or the {MARKER} in it is not ours: {error}") from error
        raise
    try:
        marker = _decode_marker(content)
        uuid.UUID(marker.id)
    except (msgspec.MsgspecError, ValueError) as error:
        raise PoolUnusable(f"{OURS}/{MARKER} cannot be read: {error}") from error
    if marker.version != VERSION:
        raise PoolUnusable(
            f"{OURS}/{MARKER} is of version {marker.version}; {VERSION} is known here"
        )
    return marker


def _check_unused(ours: int) -> None:
    """Check that no pool has lost its marker there. Raises PoolUnusable, OSError."""
    for part in (RECORDS, TRASH, IMAGES):
        with suppress(FileNotFoundError), pinned(ours, part) as there:
            if holds_anything(there):
                raise PoolUnusable(
                    f"{OURS}/{MARKER} is missing, and {OURS}/{part} is not empty: bring it back"
                )


def _write_marker(pool: int, config: PoolConfig) -> None:
    make_directory(pool, OURS, 0o700)
    with opened(pool, OURS) as ours:
        check_owner(ours, f"{config.host_dir}/{OURS}")
        _check_unused(ours)
        for name in list_names(ours):
            if name.startswith(TEMPORARY):
                os.unlink(name, dir_fd=ours)
        marker = _Marker(VERSION, str(uuid.uuid4()), config.backend)
        staged = stage_file(ours, msgspec.json.encode(marker) + b"\n")
        # Another agent may have been faster: then its marker counts, and the lock decides.
        with suppress(FileExistsError):
            put_staged(ours, staged, MARKER, replace=False)
        sync_directory(ours)
    sync_directory(pool)
