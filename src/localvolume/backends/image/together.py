"""Snapshots of several images, all cut at one moment: no write is in one that began after the cut.

The filesystems in the images are frozen, all of them before the first image is cut: what a program
has written to one, and waited for, before it wrote to another, is in the snapshots in that order.
Only they are frozen: the pool's own filesystem goes on, and so shares blocks meanwhile. A volume
that nobody uses needs no freeze, only that nobody begins to. Raw blocks in use cannot be held.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from time import time_ns
from typing import Final, NamedTuple

from localvolume.backends.image.attaching import Attachments
from localvolume.backends.image.copying import clone_blocks, closed, is_published, written_out
from localvolume.backends.image.filesystem import content_of
from localvolume.backends.model import BackendFailed, Busy, Record
from localvolume.host.block.blockdev import InUse, exclusive_open
from localvolume.host.filesystem.freezing import AlreadyFrozen, FreezeFailed, frozen
from localvolume.host.syscalls import closed_after

FROZEN_SECONDS: Final = 20.0
"""For how long the volumes of a group may stand still at most. Milliseconds are usual: everything
is written out before, and blocks are shared at once."""


class Begun(NamedTuple):
    """A new, open, empty image, the record of the snapshot that it is to be, and its origin."""

    fd: int
    record: Record
    origin: Record


class _Still(NamedTuple):
    """An origin that keeps still: its open image and device, and its filesystem's root if used."""

    image: int
    device: int
    root: int | None


def cut_together(at: Attachments, pool: int, members: Sequence[Begun]) -> list[Record]:
    """Fill the images with what their origins hold at one moment; returns the records completed.

    Raises Busy if one cannot be held still, NoSpace, BackendFailed, OSError.
    """
    with ExitStack() as held:
        origins = [held.enter_context(_held(at, pool, member.origin)) for member in members]
        roots = [one.root for one in origins if one.root is not None]
        with _frozen(roots):
            # What was on disk by then is in it.
            cut_at = time_ns()
            for member, origin in zip(members, origins, strict=True):
                os.fsync(origin.device)
                clone_blocks(member.fd, origin.image)
    return [_complete(member, cut_at) for member in members]


@contextmanager
def _frozen(roots: Sequence[int]) -> Iterator[None]:
    """Keep the filesystems still. Raises Busy, BackendFailed, OSError."""
    if not roots:
        yield
        return
    try:
        with frozen(roots, seconds=FROZEN_SECONDS):
            yield
    except AlreadyFrozen as error:
        raise Busy(str(error)) from error
    except FreezeFailed as error:
        raise BackendFailed(str(error)) from error


def _complete(member: Begun, cut_at: int) -> Record:
    inode = os.fstat(member.fd).st_ino
    return closed(member.fd, replace(member.record, cut_at=cut_at, inode=inode))


@contextmanager
def _held(at: Attachments, pool: int, origin: Record) -> Iterator[_Still]:
    """Yield what there is to hold of an origin: all that was written before is written out."""
    with ExitStack() as held:
        image, loop = held.enter_context(at.attached(pool, origin))
        content = content_of(origin)
        if content == "raw" and is_published(loop):
            raise Busy(_why_not_block(origin))
        try:
            # While nobody uses the volume, nobody can begin to.
            device, root = exclusive_open(loop.node, write=False, device=loop.device), None
        except InUse as error:
            if content == "raw":
                raise Busy(_why_not_block(origin)) from error
            used = held.enter_context(written_out(loop, content))
            # Nobody writes to one that is mounted read-only, and it is not frozen either.
            root = None if os.fstatvfs(used).f_flag & os.ST_RDONLY else used
            device = os.open(loop.node, os.O_RDONLY | os.O_CLOEXEC)
        held.enter_context(closed_after(device))
        os.fsync(device)
        yield _Still(image, device, root)


def _why_not_block(origin: Record) -> str:
    return (
        f"{origin.name} is a block device that is in use, and nothing holds its writes: it can be"
        " one of a group once no pod uses it"
    )
