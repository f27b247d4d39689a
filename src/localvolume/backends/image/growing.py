"""Grow an image, its loop device and the filesystem in it, in this order; never shrink them.

Each step may be repeated: the size of the image follows from the wanted size and the shape of the
filesystem alone, so an attempt that ended half way is continued, and nothing is added to it.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from localvolume.backends.fstools import BLOCK, ext_super, growth_told, mounted_root, mounted_xfs
from localvolume.backends.image.filesystem import content_of, raw_bytes, wanted_blocks
from localvolume.backends.image.offline import resize_by_kernel
from localvolume.backends.model import Busy, NoSpace, Record
from localvolume.host.block import blockdev
from localvolume.host.filesystem.allocation import allocate
from localvolume.host.filesystem.growing import grow_ext4, grow_xfs, xfs_geometry, xfs_on_disk
from localvolume.host.loop import attach
from localvolume.host.loop.attach import Loop

Offline = Callable[[int], None]
"""Resizes the unmounted ext4 to that many blocks by its tools."""

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def grow_image(fd: int, loop: Loop, record: Record, size_bytes: int, offline: Offline) -> None:
    """Grow the volume in the open, attached image to have room for that many bytes.

    Raises BackendFailed (NoSpace: the image is as it was) and OSError.
    """
    content = content_of(record)
    if content == "raw":
        extend(fd, loop, raw_bytes(size_bytes), sparse=record.sparse)
    elif content == "ext4":
        _grow_ext4(fd, loop, record, size_bytes, offline)
    else:
        _grow_xfs(fd, loop, record, size_bytes)


def begun_bytes(fd: int, record: Record) -> int:
    """How many bytes the volume in the open image has room for beyond its record, or will have once
    its filesystem is as large as the image. A growth that ended early has taken them from the pool,
    allocated or reserved. 0 if unknown. Raises OSError and BackendFailed.
    """
    if record.state not in ("made", "offered"):
        return 0
    size, content = os.fstat(fd).st_size, content_of(record)
    if content == "raw":
        return max(0, size - raw_bytes(record.size_bytes))
    # Read from the file, even if mounted: only the filesystem's size may be out of date there.
    shape = ext_super(fd) if content == "ext4" else xfs_on_disk(fd)
    if shape is None:
        return 0
    more = shape.room(size // shape.block_size) * shape.block_size - record.size_bytes
    if size > shape.blocks * shape.block_size or more > _usual_excess(record.size_bytes):
        return max(0, more)
    return 0


def _usual_excess(size_bytes: int) -> int:
    """A little more than a filesystem may have beyond the promise (``filesystem``)."""
    return max(size_bytes // 64, 4 * BLOCK)


def extend(fd: int, loop: Loop, size: int, *, sparse: bool) -> None:
    """Grow the image and its device to that many bytes, if they have fewer.

    Raises NoSpace (nothing has changed then) and OSError.
    """
    present = os.fstat(fd).st_size
    if size > present:
        try:
            if sparse:
                os.ftruncate(fd, size)
            else:
                allocate(fd, present, size - present)
            os.fsync(fd)
        except OSError as error:
            os.ftruncate(fd, present)
            if error.errno in NO_ROOM:
                raise NoSpace(f"the pool has no room for {size - present} more bytes") from error
            raise
    # An earlier attempt may have ended before this, so it is always done.
    attach.set_capacity(loop)


@contextmanager
def _mounted_root(loop: Loop) -> Iterator[int | None]:
    """Yield the open root of a mount of the device that we see; None if it is not mounted.

    Raises Busy if it is in use and we see no mount of it, and OSError.
    """
    with mounted_root(loop.device) as root:
        if root is None:
            try:
                os.close(blockdev.exclusive_open(loop.node, write=False, device=loop.device))
            except blockdev.InUse as error:
                raise Busy(f"{error}, where the agent cannot see it") from error
        yield root


def _grow_ext4(fd: int, loop: Loop, record: Record, size_bytes: int, offline: Offline) -> None:
    wanted = wanted_blocks(size_bytes)
    with _mounted_root(loop) as root:
        # Read from the device: what is written to it reaches the file later.
        present = ext_super(loop.node)
        blocks = present.blocks_for(wanted)
        if blocks <= present.blocks:
            return
        extend(fd, loop, blocks * present.block_size, sparse=record.sparse)
        if root is not None:
            with growth_told():
                grow_ext4(root, blocks)
            return
    if not resize_by_kernel(loop, blocks):
        offline(blocks)


def _grow_xfs(fd: int, loop: Loop, record: Record, size_bytes: int) -> None:
    with _mounted_root(loop) as root:
        if root is not None:
            _grow_mounted_xfs(root, fd, loop, record, size_bytes)
            return
    with mounted_xfs(loop.node) as root:
        _grow_mounted_xfs(root, fd, loop, record, size_bytes)


def _grow_mounted_xfs(root: int, fd: int, loop: Loop, record: Record, size_bytes: int) -> None:
    geometry = xfs_geometry(root)
    blocks = geometry.blocks_for(wanted_blocks(size_bytes))
    if blocks <= geometry.blocks:
        return
    extend(fd, loop, blocks * BLOCK, sparse=record.sparse)
    with growth_told():
        grow_xfs(root, geometry, blocks)
