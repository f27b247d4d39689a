"""Volumes on devices of their own that keep still for a cut: written out, held or frozen.

A volume that nobody uses needs no freeze, only that nobody begins to use it. One in use has its
filesystem frozen. Raw blocks in use cannot be held: programs write to them as they like.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from localvolume.backends.model import BackendFailed, Busy
from localvolume.host.block.blockdev import InUse, exclusive_open
from localvolume.host.filesystem.freezing import AlreadyFrozen, FreezeFailed, frozen
from localvolume.host.mount.detached import detached_mount
from localvolume.host.mount.inuse import users_of
from localvolume.host.syscalls import closed_after, syncfs

FROZEN_SECONDS: Final = 20.0
"""For how long the volumes of a group may stand still at most."""


class Still(NamedTuple):
    """The open device of a volume, and its filesystem's root if that is to be frozen."""

    device: int
    root: int | None


@contextmanager
def held(name: str, node: str, device: str, fs: str) -> Iterator[Still]:
    """Yield what there is to hold of a volume: all that was written before is written out.

    `node` leads to the device `device` (``major:minor``); `fs` is its filesystem, "" for raw
    blocks. Raises Busy if it cannot be held, BackendFailed, NotABlockDevice, OSError.
    """
    with ExitStack() as stack:
        if not fs and is_published(node):
            raise Busy(_why_not_block(name))
        try:
            # While nobody uses the volume, nobody can begin to.
            fd, root = exclusive_open(node, write=False, device=device), None
        except InUse as error:
            if not fs:
                raise Busy(_why_not_block(name)) from error
            used = stack.enter_context(written_out(node, fs))
            # Nobody writes to one that is mounted read-only, and it is not frozen either.
            root = None if os.fstatvfs(used).f_flag & os.ST_RDONLY else used
            fd = os.open(node, os.O_RDONLY | os.O_CLOEXEC)
        stack.enter_context(closed_after(fd))
        os.fsync(fd)
        yield Still(fd, root)


@contextmanager
def all_frozen(volumes: Sequence[Still], seconds: float = FROZEN_SECONDS) -> Iterator[float | None]:
    """Keep them still for at most so many seconds.

    Yields when that time ends (``time.monotonic``), None where nothing is to be frozen. Raises
    Busy, BackendFailed, OSError: then whatever was done within counts for nothing.
    """
    roots = [one.root for one in volumes if one.root is not None]
    if not roots:
        yield None
        return
    try:
        with frozen(roots, seconds=seconds) as until:
            yield until
    except AlreadyFrozen as error:
        raise Busy(str(error)) from error
    except FreezeFailed as error:
        raise BackendFailed(str(error)) from error


@contextmanager
def written_out(node: str, fs: str) -> Iterator[int]:
    """Yield the root of the filesystem on the device, which is in use, with all of it on disk.

    Raises Busy if it is not its filesystem that uses it, BackendFailed.
    """
    with ExitStack() as mounted:
        try:
            root = mounted.enter_context(detached_mount(node, fs))
            syncfs(root)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise BackendFailed(f"it cannot be written out: {error.strerror}") from error
            root = mounted.enter_context(_read_only(node, fs))
        yield root


@contextmanager
def _read_only(node: str, fs: str) -> Iterator[int]:
    """Yield the root of a filesystem that is mounted read-only. Raises Busy if none is."""
    with ExitStack() as mounted:
        try:
            root = mounted.enter_context(detached_mount(node, fs, ("ro",)))
        except OSError as error:
            raise Busy(f"{node} is in use, and not by its filesystem") from error
        yield root


def is_published(node: str) -> bool:
    """Whether pods have the device: they open it plainly, and whenever they like.

    LVM's names of devices are links, and what is mounted for pods is the device itself.
    """
    with closed_after(os.open(node, os.O_PATH | os.O_CLOEXEC)) as device:
        return bool(users_of(device, os.readlink(f"/proc/self/fd/{device}")))


def _why_not_block(name: str) -> str:
    return (
        f"{name} is a block device that is in use, and nothing holds its writes: it can be one of"
        " this group once no pod uses it"
    )
